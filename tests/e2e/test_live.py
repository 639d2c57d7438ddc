"""Today's files under the real daemon: whatever can be taken is, and what cannot keeps nothing else waiting."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from resources.rejected import RejectedArrivals
from tests.e2e.live.definitions import DATASETS
from tests.e2e.project import service, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.project import Project

WORKSPACE = "tests/e2e/live/workspace.yaml"


def send(project: Project, table: str, key: str, *numbers: int) -> Path:
    """A partner sends a file, under another name until it is whole."""
    from pathlib import Path

    folder = Path(project.settings.landing) / "live" / table
    folder.mkdir(parents=True, exist_ok=True)
    beside, file = folder / f".{key}", folder / f"{key}.csv"
    beside.write_text("n\n" + "".join(f"{number}\n" for number in numbers), encoding="utf-8")
    return beside.replace(file)


def rows(project: Project, table: str) -> dict[str, int]:
    return {path: batch.rows for path, batch in project.current(f"live.{table}").items()}


@pytest.mark.slow
@pytest.mark.timeout(2_000)
def test_files_of_now_are_taken_and_what_cannot_be_keeps_nothing_waiting(project: Project, tmp_path: Path) -> None:
    live = project.with_databases("live").with_dagster_home(tmp_path / "dagster")
    log = tmp_path / "daemon.log"
    now = dt.datetime.now(dt.UTC)
    today, hour = now.date(), f"{now:%Y-%m-%dT%H}"
    yesterday, tomorrow = today - dt.timedelta(days=1), today + dt.timedelta(days=1)
    for day in (yesterday, today, tomorrow, dt.date(2099, 1, 1)):
        send(live, "days", day.isoformat(), 1, 2)
    send(live, "days", "notes", 1)
    send(live, "hours", hour, 1)
    send(live, "old", "2013-01-05", 1)
    started = live.run("-m", "dagster", "sensor", "start", "--start-all", "-w", WORKSPACE)
    assert started.code == 0, started.output

    with service(live, log, "dagster-daemon", "run", "-w", WORKSPACE):
        wait_until(
            lambda: [len(rows(live, table)) for table in ("days", "hours", "old")] == [2, 1, 1],
            seconds=600, what="the files of now were published", log=log,
        )  # fmt: skip
        send(live, "hours", hour, 1, 2)
        send(live, "old", "2013-01-05", 1, 2, 3)
        wait_until(
            lambda: rows(live, "hours") == {f"hour={hour}": 2} and rows(live, "old") == {"day=2013-01-05": 3},
            seconds=600, what="the hour that grew and the corrected day were published", log=log,
        )  # fmt: skip
        send(live, "hours", hour, 1, 2, 3)
        wait_until(lambda: rows(live, "hours") == {f"hour={hour}": 3}, seconds=600, what="the hour grew again", log=log)
        wait_until(
            lambda: rows(live, "totals") == {f"day={yesterday}": 1} and set(rows(live, "running")) == {f"day={today}"},
            seconds=600, what="what reads them followed", log=log,
        )  # fmt: skip

    assert rows(live, "days") == {f"day={yesterday}": 2, f"day={today}": 2}
    with live.catalog() as catalog:
        rejected = {one.uri.rsplit("/", 1)[-1]: one for _, one in RejectedArrivals(catalog.connection).all()}
        assert RejectedArrivals(catalog.connection).left_out() == []
        failed = catalog.connection.execute("select * from varve.batch where state = 'failed'").fetchall()
        assert failed == []
    assert {name: str(one.kind) for name, one in rejected.items()} == {
        f"{tomorrow}.csv": "early", "2099-01-01.csv": "early", "notes.csv": "no key",
    }  # fmt: skip
    midnight = dt.datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=dt.UTC)
    assert rejected[f"{tomorrow}.csv"].until == midnight.timestamp()
    with live.dagster() as instance:
        ticks = [
            tick for state in instance.all_instigator_state()
            for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
        ]  # fmt: skip
        assert ticks
        assert [tick.error for tick in ticks if tick.status.name == "FAILURE"] == []
        assert {run.status for run in instance.get_runs()} == {dg.DagsterRunStatus.SUCCESS}
        # What the UI lists and what Varve has are the same partitions.
        for each in DATASETS:
            assert isinstance(each.asset, dg.AssetsDefinition)
            definition = each.asset.partitions_def
            assert definition is not None
            shown = {each.dataset.partitioning.from_dagster(key) for key in definition.get_partition_keys()}
            assert set(live.current(each.dataset.name)) <= {key.path for key in shown}
