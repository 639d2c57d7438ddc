"""Every setting of Varve: what a project says (varve/project.py), overridden by `VARVE_...` in the environment.

Not here: Dagster's own settings (dagster.yaml) and Spark's (spark_server.py).
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from varve.model.errors import VarveError
from varve.planning.operations.quiet_hours import problem_of_quiet_hours
from varve.services.addresses import problem_of_folder, problem_of_postgres, problem_of_remote, problem_of_root

if TYPE_CHECKING:
    from collections.abc import Callable

_LISTED = "docs/reference.md lists the settings."


class Compression(StrEnum):
    """The codecs that every reader of parquet knows."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    NONE = "none"


class ContentHash(StrEnum):
    """Which runs hash the rows of their batches, which tells a rerun with the same rows from a change."""

    SINGLE = "single"
    """Runs of one partition, while they write the rows: this costs next to nothing. Runs of several, as `ALWAYS`, only
    in environments with changed code, and where they replace what other code has made; they hash that, too."""
    ALWAYS = "always"
    """All runs; one of many partitions reads its rows again, which takes about a quarter of the time of the write."""
    NEVER = "never"


class LogFormat(StrEnum):
    """How processes write their logs to stderr."""

    TEXT = "text"
    """Lines for people, in Dagster's layout."""
    JSON = "json"
    """A JSON object a line, which says of which run, dataset, partition and batch it is."""


class _FromEnvironment(BaseSettings):
    """Fields that are read from `VARVE_...`; what is wrong with them is said in one line."""

    model_config = SettingsConfigDict(
        env_prefix="VARVE_", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    def __init__(self, **values: Any) -> None:
        """Read the environment, except for these values. Raises VarveError that names variables and their values."""
        try:
            super().__init__(**values)
        except SettingsError as error:
            # A setting with parts is JSON; pydantic names its field only in the message.
            field = re.search(r'field "(\w+)"', str(error))
            name = _variable(field[1]) if field else "a setting"
            raise VarveError(f"{name} is not JSON: {error.__cause__}. {_LISTED}") from None
        except ValidationError as error:
            problems = [
                f"{_with_value(*details['loc'], value=details['input'])}: {details['msg']}"
                for details in error.errors()
            ]
            raise VarveError(f"{'; '.join(problems)}. {_LISTED}") from None
        for name, problem_of in _CHECKS.items():
            value = getattr(self, name, None)
            if value is not None and (problem := problem_of(value)):
                raise VarveError(f"{_variable(name)} {problem} {_LISTED}")


class SensorSettings(_FromEnvironment):
    """The settings on which the definitions depend: they load though another one is wrong; runs and ticks say so."""

    # Less than the 5 seconds of one round of Dagster's daemon: an interval of 5 would miss every second round.
    sensor_interval_seconds: int = Field(2, ge=1, description="the sensors look again after so many seconds")
    environment: str | None = Field(
        None, description="runs compute in this environment and not in production; there are no sensors and schedules"
    )
    log_format: LogFormat = Field(LogFormat.TEXT, description="how logs are written to stderr: text or json")
    console_url: str | None = Field(
        None, description="address of the console, for links to it on the pages of assets; `varve ui` sets its own"
    )
    project_name: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$",
        description="the name under which this project owns its datasets, where several projects share a catalog",
    )
    alerts_seconds: int = Field(30, ge=1, description="the sensor `alerts` looks again after so many seconds")


class Settings(SensorSettings):
    """Where state lives and which servers are used. Empty settings mean the embedded services of this machine."""

    project: Path = Field(default_factory=Path.cwd, description="the folder of the project, or one within it")
    home: Path = Field(
        default_factory=lambda given: given["project"] / ".varve", description="all state of the default set-up"
    )
    postgres_url: str | None = Field(None, repr=False, description="a deployed PostgreSQL for catalog and warehouse")
    dagster_postgres_url: str | None = Field(
        None, repr=False, description="a deployed PostgreSQL for Dagster's own storage"
    )
    source_url: str | None = Field(
        None, repr=False, description="the PostgreSQL whose tables are captured; default: embedded"
    )
    spark_remote: str | None = Field(
        None, repr=False, description="a deployed Spark Connect server, sc://host:port/;token=..."
    )
    spark_master: str | None = Field(None, description="classic mode: a master URL, for example yarn or local[4]")
    spark_driver_memory: str = Field("2g", description="heap of the Spark that Varve itself starts")
    spark_conf: dict[str, str] = Field(
        {}, repr=False, description="further settings of the Spark that Varve starts, as JSON"
    )
    spark_port: int | None = Field(
        None, ge=1, le=65_535, description="port of the embedded Spark Connect server; default: any free one"
    )
    hive_metastore_uri: str | None = Field(None, description="thrift:// URI of a deployed Hive metastore")
    lake_root: str | None = Field(None, description="folder or URI under which the lake lies")
    landing_root: str | None = Field(None, description="folder or URI into which partners put files")
    settle_seconds: float = Field(5.0, ge=0, description="a landing file is taken when unchanged for so long")
    bootstrap_seconds: float = Field(60.0, gt=0, description="a snapshot waits so long for transactions of its source")
    changes_days: float = Field(
        7.0, ge=0, description="batches of change events that are applied are kept until they are so many days old"
    )
    sensor_seconds: float = Field(20.0, gt=0, description="time budget of one sensor tick")
    partitions_per_run: int = Field(1_000, ge=1, description="a sensor asks for at most so many partitions in one run")
    attempts: int = Field(3, ge=1, description="a partition is given up after so many failures alone in a row")
    backoff_seconds: float = Field(30.0, ge=0, description="a partition that failed waits so long, then twice as long")
    backoff_most_seconds: float = Field(3_600.0, ge=0, description="and so long at most")
    wait_seconds: float = Field(300.0, ge=0, description="a run waits so long for another that builds its partitions")
    publish_seconds: float = Field(60.0, gt=0, description="how long a warehouse publish waits for readers to let go")
    load_connections: int = Field(4, ge=1, description="how many connections one load into the warehouse may use")
    reader_connections: int = Field(50, ge=1, description="connection limit of the role varve_reader, when it is made")
    reader_seconds: float = Field(300, gt=0, description="statement limit of the role varve_reader, when it is made")
    compression: Compression = Field(Compression.ZSTD, description="codec of the lake's parquet files")
    content_hash: ContentHash = Field(ContentHash.SINGLE, description="which runs hash the rows of their batches")
    iceberg: bool | None = Field(
        None, description="whether the lake's tables are Iceberg tables too; default: where varve[iceberg] is installed"
    )
    iceberg_snapshots: int = Field(100, ge=1, description="so many snapshots stay in the metadata of an Iceberg table")
    lease_seconds: float = Field(30.0, ge=1, description="a run that gives no sign of life for so long counts as dead")
    ui_port: int = Field(3000, ge=1, le=65_535, description="port of the Dagster UI on 127.0.0.1")
    ui_url: str | None = Field(None, description="address of the Dagster UI, for links to runs")
    alerts: dict[str, SecretStr] = Field(
        {}, repr=False, description="who is told of alerts: channels by name, as Apprise writes them, as JSON"
    )
    alerts_quiet: str | None = Field(None, description="when nobody is told: 22:00-07:00 Europe/Zurich")
    alerts_lag_minutes: float = Field(15.0, gt=0, description="a capture, a Hive table or the daemon may lag so long")
    alerts_disk_percent: float = Field(90.0, gt=0, le=100, description="a disk that is fuller is nearly full")

    def run_url(self, run_id: str) -> str | None:
        """The page of a run in the Dagster UI; None where its address is not set, or where Dagster had no such run."""
        try:
            UUID(run_id)
        except ValueError:
            # A command made the batch: `rollback-3f9c0d2e by ann`.
            return None
        return None if self.ui_url is None else f"{self.ui_url.rstrip('/')}/runs/{run_id}"

    @property
    def home_dir(self) -> Path:
        """`home`, absolute."""
        return self.home.expanduser().resolve()

    @property
    def lake(self) -> str:
        """The lake's root as a folder or URI without a trailing slash."""
        return _root(self.lake_root or str(self.home_dir / "lake"))

    @property
    def landing(self) -> str:
        """The landing root as a folder or URI without a trailing slash."""
        return _root(self.landing_root or str(self.home_dir / "landing"))

    @property
    def embedded_postgres(self) -> bool:
        """Whether PostgreSQL is ours to start."""
        return self.postgres_url is None

    @property
    def embedded_spark(self) -> bool:
        """Whether the Spark Connect server is ours to start."""
        return self.spark_remote is None and self.spark_master is None


def _root(text: str) -> str:
    """A folder or URI as every program understands it: a server of Spark has a working directory of its own."""
    if text.startswith("file:/") and not text.startswith("file://"):
        text = "file://" + text.removeprefix("file:")
    elif "://" not in text:
        text = str(Path(text).expanduser().absolute())
    return text.rstrip("/")


def _variable(*path: int | str) -> str:
    """The environment variable of a field, with the place within it."""
    return "VARVE_" + str(path[0]).upper() + "".join(f".{step}" for step in path[1:])


def _with_value(*path: int | str, value: object) -> str:
    """The environment variable of a field with its value, unless that may be a secret."""
    variable = _variable(*path)
    return variable if path[0] in {*_CHECKS, "spark_conf", "alerts"} else f"{variable}={value!r}"


# Settings that may hold a password are checked here, before the message of a driver repeats a part of them.
_CHECKS: dict[str, Callable[[str], str | None]] = {
    "postgres_url": problem_of_postgres,
    "dagster_postgres_url": problem_of_postgres,
    "source_url": problem_of_postgres,
    "spark_remote": problem_of_remote,
    "lake_root": problem_of_folder,
    "landing_root": problem_of_folder,
    "hive_metastore_uri": problem_of_root,
    "alerts_quiet": problem_of_quiet_hours,
}
