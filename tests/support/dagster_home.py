"""Homes of Dagster for tests that open one again and again in a process: files of SQLite, made once and copied.

Dagster's default keeps the events of each run in a database of its own, whose tables are made for each run, and
prepares each statement anew; here one database has them all. What a step prints is not kept: Dagster starts
four processes for each run that put it into files, two of them Python. Tests of what a deployment runs on use
PostgreSQL and those files, as the project's dagster.yaml says.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy
import yaml
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage  # noqa: TID251 - what it opens anew each time
from dagster._core.storage.runs import SqliteRunStorage  # noqa: TID251 - the same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagster._serdes import ConfigurableClassData  # noqa: TID251 - the type of what it is configured by

_RUNS, _SCHEDULES = "history", "schedules"


class EventLog(ConsolidatedSqliteEventLogStorage):
    """Dagster's log of events in one database, whose statements are prepared once for each opened instance."""

    @cached_property
    def _engine(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self._conn_string, poolclass=sqlalchemy.NullPool, connect_args={"timeout": 60})

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        with self._engine.begin() as connection:
            yield connection


class RunStorage(SqliteRunStorage):
    """Dagster's runs, whose statements are prepared, and whose columns are looked up, once for each opened instance."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> RunStorage:
        """One of this class, where Dagster's own would be of the one above."""
        return cls.from_local(inst_data=inst_data, **config_value)

    @cached_property
    def _engine(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self._conn_string, poolclass=sqlalchemy.NullPool)

    @cached_property
    def _has_columns_of_stats(self) -> bool:
        return super().has_run_stats_index_cols()

    @contextmanager
    def connect(self) -> Iterator[Any]:
        with self._engine.begin() as connection:
            yield connection

    def has_run_stats_index_cols(self) -> bool:
        return self._has_columns_of_stats


def make_dagster_home(home: Path) -> None:
    """Make a folder that DAGSTER_HOME can name, with its dagster.yaml and the databases."""
    for folder in (_RUNS, _SCHEDULES):
        shutil.copytree(_template() / folder, home / folder)
    _write_yaml(home)


@cache
def _template() -> Path:
    home = Path(tempfile.mkdtemp(prefix="dagster_home_"))
    _write_yaml(home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        # Opening makes the tables; what has not been asked for yet is made by asking.
        instance.get_run_records(limit=1)
        instance.all_instigator_state()
        instance.get_asset_keys()
    return home


def _write_yaml(home: Path) -> None:
    def storage(module: str, name: str, folder: str) -> dict[str, object]:
        return {"module": module, "class": name, "config": {"base_dir": str(home / folder)}}

    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(
        yaml.safe_dump({
            "telemetry": {"enabled": False},
            "run_storage": storage(__name__, RunStorage.__name__, _RUNS),
            "event_log_storage": storage(__name__, EventLog.__name__, _RUNS),
            "schedule_storage": storage("dagster._core.storage.schedules", "SqliteScheduleStorage", _SCHEDULES),
            "compute_logs": {
                "module": "dagster._core.storage.noop_compute_log_manager",
                "class": "NoOpComputeLogManager",
            },
        }),
        encoding="utf-8",
    )  # fmt: skip
