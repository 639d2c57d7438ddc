"""Files of now under the real daemon: whatever can be taken is, and what cannot keeps nothing else waiting.

The datasets' time zone is one in which it is about three at night: neither midnight nor the machine's own zone decides
whether the test holds, and the hours of today so far are few.
"""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.project import service, wait_until
from varve.catalog.rejected import RejectedArrivals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.project import Project

WORKSPACE = "tests/e2e/live/workspace.yaml"
# For each of the waits; a machine that is shared with others may need most of it.
SECONDS = 600


def zone_of_early_morning() -> str:
    """A zone in which it is between two and three o'clock."""
    ahead = (2 - dt.datetime.now(dt.UTC).hour + 12) % 24 - 12
    # The sign of these names is that of the way to Greenwich.
    return f"Etc/GMT{-ahead:+d}"


def send(project: Project, table: str, name: str, *numbers: int) -> None:
    """A partner sends a file, under another name until it is whole; what is in it by the ending of its name."""
    folder = Path(project.settings.landing) / "live" / table
    folder.mkdir(parents=True, exist_ok=True)
    beside, text = folder / f".{name}", "n\n" + "".join(f"{number}\n" for number in numbers)
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), beside)
    else:
        beside.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    beside.replace(folder / name)


def contents(project: Project, table: str) -> dict[str, list[int]]:
    """The numbers of each current partition, read as anybody's parquet."""
    return {
        path: sorted(pq.ParquetDataset(batch.location, partitioning=None).read(["n"])["n"].to_pylist())
        for path, batch in project.current(f"live.{table}").items()
    }


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_files_of_now_are_taken_and_what_cannot_be_keeps_nothing_waiting(project: Project, tmp_path: Path) -> None:
    zone = zone_of_early_morning()
    live = project.with_databases("live").with_dagster_home(tmp_path / "dagster")
    live = type(live)({**live.environment, "LIVE_ZONE": zone})
    log = tmp_path / "daemon.log"
    now = dt.datetime.now(ZoneInfo(zone))
    today, hour = now.date(), f"{now:%Y-%m-%dT%H}"
    earlier = [f"{today}T{each:02}" for each in range(now.hour)]
    back = [today - dt.timedelta(days=each) for each in range(4)]
    tomorrow = today + dt.timedelta(days=1)
    for day in (back[1], today, tomorrow, dt.date(2099, 1, 1)):
        send(live, "days", f"{day}.csv", 1, 2)
    send(live, "days", "notes.csv", 1)
    send(live, "days", f"{back[2]}.csv.gz", 3, 4, 5)
    send(live, "days", f"{back[3]}.parquet", 6)
    send(live, "regions", f"{today}|EU.csv", 7)
    send(live, "regions", f"{back[1]}|US.csv", 8)
    send(live, "regions", f"{today}|Atlantis.csv", 9)
    for each in [*earlier, hour]:
        send(live, "hours", f"{each}.csv", 1)
    send(live, "old", "2013-01-05.csv", 1)
    started = live.run("-m", "dagster", "sensor", "start", "--start-all", "-w", WORKSPACE)
    assert started.code == 0, started.output

    def until(what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, seconds=SECONDS, what=what, log=log)

    with service(live, log, "dagster-daemon", "run", "-w", WORKSPACE):
        until("the open hour was published", lambda: contents(live, "hours").get(f"hour={hour}") == [1])
        # All that cannot be taken lies there by now, and a file of 2013 is corrected beside it.
        until("the day of 2013 was published", lambda: contents(live, "old") == {"day=2013-01-05": [1]})
        send(live, "hours", f"{hour}.csv", 1, 2)
        send(live, "old", "2013-01-05.csv", 1, 2, 3)
        until("the hour grew", lambda: contents(live, "hours").get(f"hour={hour}") == [1, 2])
        send(live, "hours", f"{hour}.csv", 1, 2, 3)
        until("the hour grew again", lambda: contents(live, "hours").get(f"hour={hour}") == [1, 2, 3])
        until("the correction was published", lambda: contents(live, "old") == {"day=2013-01-05": [1, 2, 3]})
        until(
            "what reads today followed",
            lambda: contents(live, "running") == {f"day={today}": [len(earlier) + 6]},
        )
        until("what reads the days that are over followed", lambda: len(contents(live, "totals")) == 3)
        until("the files of two dimensions were published", lambda: len(contents(live, "regions")) == 2)

    assert contents(live, "days") == {
        f"day={today}": [1, 2], f"day={back[1]}": [1, 2], f"day={back[2]}": [3, 4, 5], f"day={back[3]}": [6],
    }  # fmt: skip
    assert contents(live, "totals") == {f"day={back[1]}": [3], f"day={back[2]}": [12], f"day={back[3]}": [6]}
    assert contents(live, "regions") == {f"day={today}/region=EU": [7], f"day={back[1]}/region=US": [8]}
    assert contents(live, "hours") == {f"hour={each}": [1] for each in earlier} | {f"hour={hour}": [1, 2, 3]}
    with live.catalog() as catalog:
        rejected = {one.uri.rsplit("/", 1)[-1]: one for _, one in RejectedArrivals(catalog.connection).all()}
        assert RejectedArrivals(catalog.connection).left_out() == []
        batches = catalog.connection.execute("select dataset, partition, state from varve.batch").fetchall()
    assert {state for _, _, state in batches} <= {"published", "retired"}
    of_hour = [partition for dataset, partition, _ in batches if dataset == "live.hours" and partition.endswith(hour)]
    assert len(of_hour) == 3, "a batch for each time that the hour was sent"
    assert len([dataset for dataset, _, _ in batches if dataset == "live.old"]) == 2
    assert {name: str(one.kind) for name, one in rejected.items()} == {
        f"{tomorrow}.csv": "early", "2099-01-01.csv": "early", "notes.csv": "no key", f"{today}|Atlantis.csv": "no key",
    }  # fmt: skip
    midnight = dt.datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=ZoneInfo(zone))
    assert rejected[f"{tomorrow}.csv"].until == midnight.timestamp()
    with live.dagster() as instance:
        ticks = [
            tick for state in instance.all_instigator_state()
            for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
        ]  # fmt: skip
        assert {tick.status.name for tick in ticks} <= {"SUCCESS", "SKIPPED", "STARTED"}, [tick.error for tick in ticks]
        assert "SUCCESS" in {tick.status.name for tick in ticks}
        assert {run.status for run in instance.get_runs()} == {dg.DagsterRunStatus.SUCCESS}
    # What the UI lists and what Varve has are the same partitions.
    listed = live.run("-c", _LISTED)
    assert listed.code == 0, listed.output
    assert listed.output.split()[-1] == "same", listed.output


# In a process of its own: the definitions are of the zone of its environment.
_LISTED = """
from tests.e2e.live.definitions import DATASETS
from varve.catalog.catalog import Catalog
from varve.services.postgres import connect
from varve.services.settings import Settings

with connect(Settings(), application="varve e2e test") as connection:
    for each in DATASETS:
        spelt = each.asset.partitions_def.get_partition_keys()
        shown = {each.dataset.partitioning.from_dagster(key).path for key in spelt}
        current = set(Catalog(connection).current(each.dataset.name))
        assert current <= shown, (each.dataset.name, current - shown)
print("same")
"""
