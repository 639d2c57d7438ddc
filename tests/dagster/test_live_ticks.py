"""Random arrivals under a clock that moves both ways: no tick raises, Dagster accepts every request, nothing is lost.

Real PostgreSQL, real Dagster and the real sensors; only the Spark job of a run is left out: what it would publish goes
into the catalog as the run would have it. What must come out is told by the files alone, and once more by a clean
rebuild: an empty catalog that looks at the same files at the same moment.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import os
import shutil
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import dagster as dg
import pendulum
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from psycopg import sql

from varve.catalog.catalog import Catalog
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.assets.datasets import dataset_asset, graph_of
from varve.dagster.automation.sensors import DATASET_TAG
from varve.dagster.definitions import build_defs
from varve.dagster.internal.partition_keys import keys_in_range
from varve.model.batch import Input, StagedBatch
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.requested import asked_partitions
from varve.planning.run_requests import landing_source
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.sources.landing.inspection import inspect
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varve.services.settings import Settings

ZONE = "America/New_York"
N = Schema((Column("n", ColumnType.BIGINT),))
# The clocks of New York went back on the first of November 2026: a day of 25 hours, an hour that comes twice.
HOUR = TimeDimension.of("hour", "@hourly", "2026-10-31", timezone=ZONE)
DAY = TimeDimension.of("day", "@daily", "2026-10-28", timezone=ZONE)
ENDING = TimeDimension.of("day", "@daily", "2026-10-28", "2026-11-02", timezone=ZONE)
START = pendulum.datetime(2026, 11, 1, 0, 30, tz=ZONE)


def arriving(table: str, *dimensions: TimeDimension | StaticDimension) -> Dataset:
    return Dataset(f"ticks.{table}", Partitioning(dimensions), N, StoreKind.LAKE, "", landing=True)


def derived(table: str, dimension: TimeDimension) -> Dataset:
    return Dataset(f"ticks.{table}", Partitioning((dimension,)), N, StoreKind.LAKE, "")


HOURS, DAYS, ENDS = arriving("hours", HOUR), arriving("days", DAY), arriving("ends", ENDING)
REGIONS = arriving("regions", DAY, StaticDimension("region", ("EU", "US")))
ARRIVING = (HOURS, DAYS, ENDS, REGIONS)
TOTALS, SO_FAR = derived("totals", DAY), derived("so_far", DAY.reaching(1))


@dataset_asset(HOURS)
def hours(context) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(DAYS)
def days(context) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(ENDS)
def ends(context) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(REGIONS)
def regions(context) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(TOTALS, reads={"days": DAYS})
def totals(context, days) -> None: ...  # type: ignore[no-untyped-def]


@dataset_asset(SO_FAR, reads={"hours": HOURS})
def so_far(context, hours) -> None: ...  # type: ignore[no-untyped-def]


ASSETS = [hours, days, ends, regions, totals, so_far]
GRAPH = graph_of(ASSETS)
DEFS = build_defs(ASSETS)

NAMES = {
    "days": [
        "2026-10-30",
        "2026-10-31",
        "2026-11-01",
        "2026-11-02",
        "2099-01-01",
        "2020-01-01",
        "notes",
        "2026-10%2D31",
        "2026-10-29.csv.gz",
        "2026-10-28.parquet",
        "2026-10-30.xlsx",
    ],
    "regions": [
        "2026-10-31|EU",
        "2026-11-01|US",
        "2026-11-02|EU",
        "2026-10-31|Atlantis",
        "2026-10-31",
        "2013-01-05|EU",
    ],
    "ends": ["2026-10-30", "2026-11-01", "2026-11-02", "2013-01-05"],
    "hours": ["2026-11-01T00", "2026-11-01T01", "2026-11-01T01-0500", "2026-11-01T02", "2026-11-02T00", "2026-11-01"],
}
CONTENTS = ["n\n1\n", "n\n1\n2\n", "n\n", "x\n1\n", "n\n1", ""]


@dataclass(frozen=True)
class Send:
    """Put a file into a landing folder, with a modification time so many seconds from now."""

    table: str
    name: str
    content: str
    age: float


@dataclass(frozen=True)
class Remove:
    """Remove a file from a landing folder."""

    table: str
    name: str


@dataclass(frozen=True)
class Jump:
    """Let time pass, or set the clock back."""

    hours: float


STEPS = st.one_of(
    st.sampled_from(sorted(NAMES)).flatmap(
        lambda table: st.builds(
            Send, st.just(table), st.sampled_from(NAMES[table]), st.sampled_from(CONTENTS),
            st.sampled_from([0.0, 1e7, -1e7, 60.0]),
        )
    ),
    st.sampled_from(sorted(NAMES)).flatmap(
        lambda table: st.builds(Remove, st.just(table), st.sampled_from(NAMES[table]))
    ),
    st.builds(Jump, st.sampled_from([0.3, 1.0, 5.0, 24.0, -3.0, -26.0])),
)  # fmt: skip


@dataclass
class World:
    """A landing folder, a catalog, Dagster and a clock."""

    settings: Settings
    instance: dg.DagsterInstance
    now: pendulum.DateTime = START
    cursors: dict[str, str | None] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Let every clock that Varve and Dagster read show the world's time."""
        now = self.now
        with (
            mock.patch("dagster._time._mockable_get_current_datetime", return_value=now.in_timezone("UTC")),
            mock.patch("dagster._time._mockable_get_current_timestamp", return_value=now.timestamp()),
            mock.patch("pendulum.now", side_effect=lambda tz="UTC": now.in_timezone(tz)),
            mock.patch("varve.dagster.automation.arriving.time.time", return_value=now.timestamp()),
        ):
            yield

    def step(self, what: Send | Remove | Jump) -> None:
        if isinstance(what, Jump):
            self.now = self.now.add(seconds=int(what.hours * 3_600))
            return
        file = self.file(what.table, what.name)
        if isinstance(what, Remove):
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{uuid.uuid4().hex}")
        beside.write_bytes(in_format(file.name, what.content))
        at = self.now.timestamp() + what.age
        os.utime(beside, (at, at))
        beside.replace(file)

    def file(self, table: str, name: str) -> Path:
        from pathlib import Path

        folder = Path(Landing(self.settings.landing).folder(GRAPH.datasets[f"ticks.{table}"]))
        return folder / (name if "." in name else f"{name}.csv")

    def tick(self) -> int:
        """Evaluate both sensors as the daemon does, and return how many runs they requested."""
        count = 0
        for name in ("arrivals", "downstream"):
            # No two ticks may happen at the same instant.
            self.now = self.now.add(seconds=1)
            with self.clock():
                count += self._sensor(name)
        return count

    def _sensor(self, name: str) -> int:
        repository = DEFS.get_repository_def()
        context = dg.build_sensor_context(
            instance=self.instance, repository_def=repository, cursor=self.cursors.get(name), sensor_name=name
        )
        # Dagster resolves and validates what is asked for in here, and raises what would fail the tick.
        result = repository.get_sensor_def(name).evaluate_tick(context)
        assert "Nothing was looked at" not in str(result.skip_message)
        self.cursors[name] = result.cursor
        for request in result.run_requests or ():
            self._run(request)
        return len(result.run_requests or ())

    def _run(self, request: dg.RunRequest) -> None:
        """Return what the daemon launches: exactly the partitions that Dagster gives a run with these tags."""
        repository = DEFS.get_repository_def()
        dataset = GRAPH.datasets[request.tags[DATASET_TAG]]
        job = repository.get_implicit_job_def_for_assets(request.asset_selection)
        run = self.instance.create_run_for_job(
            job, tags=dict(request.tags), asset_selection=frozenset(request.asset_selection),
            status=dg.DagsterRunStatus.SUCCESS,
        )  # fmt: skip
        definition = repository.asset_graph.get(request.asset_selection[0]).partitions_def
        asked = asked_partitions(dataset, request.tags)
        spelt = dataset.partitioning.to_dagster
        given = keys_in_range(definition, self.instance, spelt(asked[0]), spelt(asked[-1]))
        assert given == {spelt(key) for key in asked}, "the run would leave something out"
        with connect(self.settings, application="varve test") as connection:
            catalog = Catalog(connection)
            build = catalog.begin(dataset, asked, run_id=run.run_id, code_version="")
            for key in asked:
                build.inputs[key] = self._made_from(catalog, dataset, key)
            catalog.staged(build, [StagedBatch(key, "/nowhere", 1, 1, 1) for key in asked])
            catalog.publish(build)
            catalog.release(build)

    def _made_from(self, catalog: Catalog, dataset: Dataset, key: Any) -> set[Input]:
        if dataset.landing:
            inspected = inspect(dataset, catalog.arrived_files(dataset.name)[key.path].uri)
            assert inspected is not None, f"{dataset} {key}: asked for without a file"
            return {Input(landing_source(dataset), key.path, inspected.fingerprint)}
        (edge,) = GRAPH.edges[dataset.name]
        above = catalog.current(edge.upstream.name, edge.dependency.upstream_of(key).keys)
        assert above, f"{dataset} {key}: asked for without anything to read"
        return {Input(edge.upstream.name, path, str(batch.batch_id)) for path, batch in above.items()}

    def until_quiet(self) -> None:
        for _ in range(12):
            if self.tick() == 0 and self.tick() == 0:
                return
        pytest.fail("it never came to rest: a storm of runs")

    def current(self, dataset: Dataset) -> dict[str, set[Input]]:
        with connect(self.settings, application="varve test") as connection:
            return {path: set(batch.inputs) for path, batch in Catalog(connection).current(dataset.name).items()}

    def rejected(self) -> set[tuple[str, str]]:
        with connect(self.settings, application="varve test") as connection:
            listed = RejectedArrivals(connection).all()
        return {
            (dataset.partition(".")[2], arrival.uri.rsplit("/", 1)[-1].removesuffix(".csv"))
            for dataset, arrival in listed
        }

    def left_out(self) -> Sequence[object]:
        with connect(self.settings, application="varve test") as connection:
            return RejectedArrivals(connection).left_out()


# Where each key's window begins and ends in New York; written by hand, not computed by the code under test.
HOURS_OF = {
    "2026-11-01T00": "2026-11-01T04", "2026-11-01T01": "2026-11-01T05", "2026-11-01T01-0500": "2026-11-01T06",
    "2026-11-01T02": "2026-11-01T07", "2026-11-02T00": "2026-11-02T05",
}  # fmt: skip
DAYS_OF = {
    "2026-10-28": "04", "2026-10-29": "04", "2026-10-30": "04", "2026-10-31": "04", "2026-11-01": "04",
    "2026-11-02": "05",
}  # fmt: skip


def begins(table: str, name: str) -> dt.datetime | None:
    """Return when a file's window begins, in UTC; None where the dataset has no such window."""
    if table == "hours":
        first_hour = HOURS_OF.get(name)
        return dt.datetime.fromisoformat(f"{first_hour}:00+00:00") if first_hour else None
    if table == "regions":
        day, _, region = name.partition("|")
        return begins("days", day) if region in {"EU", "US"} else None
    if name == "2099-01-01" and table == "days":
        return dt.datetime(2099, 1, 1, 5, tzinfo=dt.UTC)
    if name not in DAYS_OF or (table == "ends" and name == "2026-11-02"):
        return None
    return dt.datetime.fromisoformat(f"{name}T{DAYS_OF[name]}:00:00+00:00")


def good(name: str, content: bytes) -> bool:
    """Return whether a file has the format that its name says, and is complete."""
    if name.endswith(".parquet"):
        return content.startswith(b"PAR1")
    if name.endswith(".gz"):
        return content.startswith(b"\x1f\x8b")
    return name.endswith(".csv") and content.startswith(b"n\n") and content.endswith(b"\n")


def in_format(name: str, content: str) -> bytes:
    """Return a file in the format of its suffix, or where its content is bad, bytes that have not that format."""
    text = content.encode()
    if good("x.csv", text) and name.endswith(".gz"):
        return gzip.compress(text, mtime=0)
    if good("x.csv", text) and name.endswith(".parquet"):
        numbers = pa.array([int(line) for line in content.split()[1:]], pa.int64())
        pq.write_table(pa.table({"n": numbers}), file := io.BytesIO())
        return file.getvalue()
    return text


@pytest.fixture
def world_settings(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("VARVE_LANDING_ROOT", str(tmp_path / "landing"))
    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
    with clean_database(settings) as database_settings:
        yield database_settings


# The tags that Dagster itself gives a run of two dimensions are not what it wants of others.
@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")
@hypothesis_settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(
    steps=[
        Send("days", "2026-11-01", "n\n1\n", 0.0), Send("days", "2026-11-02", "n\n1\n", 0.0),
        Send("days", "2099-01-01", "n\n1\n", 1e7), Send("days", "notes", "n\n1\n", 0.0),
        Send("hours", "2026-11-01T00", "n\n1\n", -1e7), Send("hours", "2026-11-01T00", "n\n1\n2\n", 1e7),
        Jump(-26.0), Send("ends", "2026-10-30", "n\n1", 0.0), Jump(24.0), Send("ends", "2026-10-30", "n\n1\n", -1e7),
        Send("days", "2026-10-29.csv.gz", "n\n1\n2\n", 0.0), Send("days", "2026-10-28.parquet", "n\n1\n", 0.0),
        Send("days", "2026-10-30.xlsx", "n\n1\n", 0.0), Send("regions", "2026-10-31|EU", "n\n1\n", 0.0),
        Send("regions", "2026-11-02|EU", "n\n1\n", 0.0), Send("regions", "2026-10-31|Atlantis", "n\n1\n", 0.0),
        Remove("days", "2026-11-02"), Jump(5.0),
    ]
)  # fmt: skip
@given(steps=st.lists(STEPS, max_size=14))
def test_no_arrival_and_no_clock_stops_the_sensors_or_is_lost(
    world_settings: Settings, steps: list[Send | Remove | Jump]
) -> None:
    shutil.rmtree(world_settings.landing, ignore_errors=True)
    with connect(world_settings, application="varve test") as connection:
        for table in ("arrival", "rejected_arrival", "left_out", "current", "batch", "publish", "published", "change"):
            if connection.execute("select to_regclass(%s)", (f"varve.{table}",)).fetchone() != (None,):
                connection.execute(sql.SQL("truncate varve.{} cascade").format(sql.Identifier(table)))
    # The state of a sensor of an earlier example may be lost: the catalog knows everything.
    global DEFS  # noqa: PLW0603 - as a code server that is started anew
    DEFS = build_defs(ASSETS)
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(world_settings, instance)
        world.tick()
        for step in steps:
            world.step(step)
            world.tick()
        # Whatever the clock did, in the end it is right again, and later than it ever was.
        world.now = max(world.now, START).add(hours=30)
        world.until_quiet()
        now = dt.datetime.fromtimestamp(world.now.timestamp(), tz=dt.UTC)
        rejected, arrived = set(), dict[str, dict[str, str]]()
        for dataset in ARRIVING:
            expected = arrived[dataset.name] = {}
            for file in sorted(world.file(dataset.table, "x").parent.glob("[!.]*")):
                content, key = file.read_bytes(), file.name.split(".")[0]
                begun = begins(dataset.table, key)
                if begun is None or begun > now or not good(file.name, content):
                    rejected.add((dataset.table, file.name.removesuffix(".csv")))
                else:
                    parts = zip(dataset.partitioning.names, key.split("|"), strict=True)
                    path = "/".join(f"{name}={part}" for name, part in parts)
                    expected[path] = hashlib.blake2b(content, digest_size=16).hexdigest()
            made = {
                path: {trace_input.version for trace_input in inputs} for path, inputs in world.current(dataset).items()
            }
            # Batches of a file that was removed, or replaced by a bad one, stay.
            assert {path: made.get(path) for path in expected} == {path: {digest} for path, digest in expected.items()}
        assert world.rejected() == rejected
        assert world.left_out() == []
        with connect(world_settings, application="varve test") as connection:
            catalog = Catalog(connection)
            above = {path: str(batch.batch_id) for path, batch in catalog.current("ticks.days").items()}
        complete = {path: version for path, version in above.items() if _over(path, now)}
        assert {
            path: {trace_input.version for trace_input in inputs} for path, inputs in world.current(TOTALS).items()
        } == {path: {version} for path, version in complete.items()}
        lived = {dataset.name: made_of(world, dataset) for dataset in GRAPH.in_order()}
        with clean_database(world_settings) as clean, dg.DagsterInstance.ephemeral() as other:
            DEFS = build_defs(ASSETS)
            rebuild = World(clean, other, world.now)
            rebuild.until_quiet()
            rebuilt = {dataset.name: made_of(rebuild, dataset) for dataset in GRAPH.in_order()}
        for dataset in ARRIVING:
            assert set(rebuilt[dataset.name]) == set(arrived[dataset.name])
        files = {(name, path) for name, paths in arrived.items() for path in paths}
        for name, partitions in rebuilt.items():
            for path, made_from in partitions.items():
                # A rebuild cannot have batches of a file that was removed, or replaced by a bad one.
                assert {taken for taken in lived[name][path] if taken[:2] in files} == made_from, f"{name} {path}"


def made_of(world: World, dataset: Dataset) -> dict[str, set[tuple[str, str, str]]]:
    """Return the files that each current partition was made from, as dataset, partition and fingerprint."""
    if dataset.landing:
        return {
            path: {(dataset.name, path, trace_input.version) for trace_input in inputs}
            for path, inputs in world.current(dataset).items()
        }
    (edge,) = GRAPH.edges[dataset.name]
    above = made_of(world, edge.upstream)
    with connect(world.settings, application="varve test") as connection:
        current = {path: str(batch.batch_id) for path, batch in Catalog(connection).current(edge.upstream.name).items()}
    inputs_by_path = world.current(dataset)
    # No partition is stale: the batches that were read are the current ones.
    assert all(
        trace_input.version == current[trace_input.partition]
        for inputs in inputs_by_path.values()
        for trace_input in inputs
    )
    return {
        path: {source for trace_input in inputs for source in above[trace_input.partition]}
        for path, inputs in inputs_by_path.items()
    }


@contextmanager
def clean_database(settings: Settings) -> Iterator[Settings]:
    """Yield the same settings with an empty catalog."""
    server, name = PostgresServer(settings.home_dir), f"ticks_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            with mock.patch.dict(os.environ, VARVE_POSTGRES_URL=server.url(name)):
                fresh_settings = type(settings)()
                with connect(fresh_settings, application="varve test") as connection:
                    Catalog(connection).ensure_schema()
                yield fresh_settings
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _over(path: str, now: dt.datetime) -> bool:
    day = dt.date.fromisoformat(path.removeprefix("day="))
    end = pendulum.datetime(day.year, day.month, day.day, tz=ZONE).add(days=1)
    return end.timestamp() <= now.timestamp()


def test_a_dataset_that_cannot_be_looked_at_costs_only_itself(world_settings: Settings) -> None:
    global DEFS  # noqa: PLW0603 - as above
    DEFS = build_defs(ASSETS)
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(world_settings, instance)
        # A file lies where the folder of one dataset should be; the runs of the other two are requested.
        world.step(Send("days", "2026-10-31", "n\n1\n", 0.0))
        world.step(Send("ends", "2026-10-31", "n\n1\n", 0.0))
        folder = world.file("hours", "x").parent
        folder.write_text("no folder")
        broken = Landing.files

        def files(self: Landing, dataset: Dataset) -> Any:
            if dataset is HOURS:
                raise PermissionError(13, "Permission denied", str(folder))
            return broken(self, dataset)

        with mock.patch.object(Landing, "files", files):
            world.until_quiet()
            assert set(world.current(DAYS)) == set(world.current(ENDS)) == {"day=2026-10-31"}
            (left_out,) = world.left_out()
        assert "Permission denied" in str(left_out)
        folder.unlink()
        world.until_quiet()
        assert world.left_out() == []


def test_many_files_of_one_dataset_keep_no_other_waiting(
    world_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    global DEFS  # noqa: PLW0603 - as above
    DEFS = build_defs(ASSETS)
    monkeypatch.setenv("VARVE_SENSOR_SECONDS", "1")
    many = [pendulum.datetime(2026, 10, 31, tz=ZONE).add(hours=hour) for hour in range(20)]
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(world_settings, instance)
        for at in many:
            world.step(Send("hours", f"{at:%Y-%m-%dT%H}", "n\n1\n", 0.0))
        slow = inspect

        def slowly(dataset: Dataset, uri: str) -> Any:
            if dataset is HOURS:
                time.sleep(0.1)
            return slow(dataset, uri)

        with mock.patch("varve.dagster.automation.arriving.inspect", slowly):
            # The machine's clock is ahead of this test's clock, and a file from the future takes two looks.
            world.tick()
            world.tick()
            world.step(Send("ends", "2026-10-31", "n\n1\n", 0.0))
            before = len(world.current(HOURS))
            assert 0 < before < len(many)
            world.tick()
            world.tick()
            assert set(world.current(ENDS)) == {"day=2026-10-31"}
            world.until_quiet()
        assert len(world.current(HOURS)) == len(many)


def test_a_folder_that_takes_longer_to_list_than_its_share_is_taken_all_the_same(
    world_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    global DEFS  # noqa: PLW0603 - as above
    DEFS = build_defs(ASSETS)
    monkeypatch.setenv("VARVE_SENSOR_SECONDS", "1")
    listed = Landing.files

    def files(self: Landing, dataset: Dataset) -> Any:
        found = list(listed(self, dataset))
        if dataset is HOURS:
            time.sleep(1.1)
        return found

    with dg.DagsterInstance.ephemeral() as instance, mock.patch.object(Landing, "files", files):
        world = World(world_settings, instance)
        for hour in range(3):
            world.step(Send("hours", f"2026-10-31T0{hour}", "n\n1\n", 0.0))
        world.step(Send("days", "2026-10-31", "n\n1\n", 0.0))
        for _ in range(6):
            world.tick()
        assert len(world.current(HOURS)) == 3
        assert set(world.current(DAYS)) == {"day=2026-10-31"}
