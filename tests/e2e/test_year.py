"""A change over three levels and a year of flights: tried on a week, promoted, a correction, and the way back.

Readers ask for two views of the warehouse in one statement all the while. What the numbers must be is computed from the
partner's files by Python's own arithmetic.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from resources.partner import FLIGHTS_COLUMNS, WEATHER_COLUMNS, flights_by_day, send, weather_by_hour
from tests.e2e.project import ROOT, Project, days, hours_of, url_of
from tests.e2e.test_documented_commands import PROJECT_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from resources.partner import Row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5_400)]

YEAR = days(dt.date(2013, 1, 1), 365)
WEEK = ("2013-03-04", "2013-03-10")
CORRECTED_DAY = dt.date(2013, 6, 15)
# The sums over both views, which every state of production has in common: all days are in one month and in one week.
QUESTION = """
    select (select sum(delay_minutes) from flights.weekly_delays)::bigint,
        (select sum(delay_minutes) from flights.monthly_delays)::bigint
"""
MONTHLY = """CREATE DATASET flights.monthly_delays (delay_minutes BIGINT COMMENT 'sum of departure delays')
  COMMENT 'One row: the delays of a month, from all airports.'
  STORED IN WAREHOUSE
  PARTITIONED BY (month DATE)
  FOR t IN TIMESERIES(INTERVAL 1 MONTH, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York')
  LET first_day = CAST(t AS DATE)
  INSERT (month = first_day)
AS SELECT SUM(delays.delay_minutes) AS delay_minutes FROM flights.delays
WHERE delays.day BETWEEN first_day AND LAST_DAY(first_day);
"""
OF_ALL, OF_LATE = "SUM(departures.dep_delay)", "SUM(GREATEST(departures.dep_delay, 0))"
READERS = ("flights.delays", "flights.trailing_delay", "flights.weekly_delays", "flights.monthly_delays")


@dataclass
class Pipeline:
    """A copy of the project, with one more view of the warehouse."""

    project: Project
    root: Path

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            words, cwd=self.root, env=dict(self.project.environment), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=3_000, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def varve(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(str(Path(sys.executable).parent / "varve"), *words, "--json", code=code))

    def run_due(self) -> list[str]:
        told = self.run(sys.executable, "-c", "import varve; print(*varve.run_due(varve.Project.find('.')), sep='\\n')")
        return [line.split()[0] for line in told.splitlines() if line.startswith("flights.")]

    def count_only_late(self, *, late: bool) -> None:
        """Edit the query of delays."""
        file = self.root / "assets" / "flights_delays.sql"
        text = file.read_text(encoding="utf-8").replace(OF_LATE, OF_ALL)
        assert OF_ALL in text
        file.write_text(text.replace(OF_ALL, OF_LATE) if late else text, encoding="utf-8")

    def sums(self) -> tuple[int, int]:
        with psycopg.connect(url_of(self.project)) as connection:
            found = connection.execute(QUESTION).fetchone()
        assert found is not None
        return (found[0], found[1])


@dataclass
class Reader:
    """Somebody who asks for both sums again and again, and keeps which answers there were."""

    url: str
    seen: dict[tuple[int, int], int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[None]:
        stop = threading.Event()

        def read() -> None:
            with psycopg.connect(self.url, autocommit=True) as connection:
                while not stop.is_set():
                    try:
                        found = connection.execute(QUESTION, prepare=True).fetchone()
                    except psycopg.Error as error:
                        self.errors.append(str(error))
                        return
                    assert found is not None
                    self.seen[found[0], found[1]] = self.seen.get((found[0], found[1]), 0) + 1
                    stop.wait(0.01)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)


def minutes(flights: Sequence[Row], *, late: bool = False) -> int:
    """The sum of departure delays, by the partner's own rows; early ones count as nothing where only late ones do."""
    delays = [int(float(row["dep_delay"])) for row in flights if row["dep_delay"] not in {"", "NA"}]
    return sum(max(delay, 0) if late else delay for delay in delays)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    root = tmp_path / "year"
    root.mkdir()
    for name in PROJECT_FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, root)
    (root / "assets" / "flights_monthly_delays.sql").write_text(MONTHLY, encoding="utf-8")
    with Project.of_its_own("year") as project:
        path = f"{Path(sys.executable).parent}{os.pathsep}{project.environment['PATH']}"
        own = Project({**project.environment, "PATH": path, "COLUMNS": "200"}, root)
        yield Pipeline(own, root)


def test_a_year_is_changed_promoted_corrected_and_taken_back(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flights = {day: rows for day, rows in flights_by_day(YEAR).items() if rows}
    landing = Path(pipeline.project.settings.landing) / "flights"
    for day, rows in flights.items():
        send(landing / "departures", day, FLIGHTS_COLUMNS, rows)
    observed = weather_by_hour(hours := [hour for day in YEAR for hour in hours_of(day)])
    for hour in hours:
        send(landing / "weather", hour, WEATHER_COLUMNS, observed[hour])
    pipeline.run_due()
    of_all = sum(minutes(rows) for rows in flights.values())
    of_late = sum(minutes(rows, late=True) for rows in flights.values())
    assert pipeline.sums() == (of_all, of_all) != (of_late, of_late)
    whole = {
        name.removeprefix("flights."): len(pipeline.project.current(name))
        for name in (*READERS, "flights.carrier_model")
    }
    assert (whole["delays"], whole["trailing_delay"], whole["monthly_delays"]) == (1_095, 1_095, 12)

    # The plan: what the code of before has made, and nothing else.
    pipeline.count_only_late(late=True)
    plan = pipeline.varve("plan")
    told = json.dumps(plan)
    assert "flights.delays" in told
    assert pipeline.run_due() == []

    reader = Reader(url_of(pipeline.project))
    with reader.reading():
        pipeline.varve("env", "create", "late")
        week = pipeline.varve("env", "run", "late", "--from", WEEK[0], "--to", WEEK[1])["computed"]
        # Seven days, and the six before them, which the trailing week of the first reads.
        assert week == {"flights.delays": 3 * 13, "flights.trailing_delay": 3 * 7, "flights.weekly_delays": 3}
        # A function of Python may change other systems, and is run where somebody says so.
        rest = pipeline.varve("env", "run", "late", "--effects")["computed"]
        assert {name.removeprefix("flights."): week.get(name, 0) + count for name, count in rest.items()} == whole
        assert set(reader.seen) == {(of_all, of_all)}
        promoted = pipeline.varve("promote", "late")
        assert {
            name.removeprefix("flights."): len(batches) for name, batches in promoted["partitions"].items()
        } == whole
        assert promoted["moved"] == {}
        assert pipeline.sums() == (of_late, of_late)
        assert pipeline.run_due() == []

        # A correction of one day: half of its flights were never flown.
        kept = flights[CORRECTED_DAY.isoformat()][:400]
        file = send(tmp_path / "sent", CORRECTED_DAY.isoformat(), FLIGHTS_COLUMNS, kept)
        corrected = pipeline.varve("correct", "flights.departures", str(file))
        assert corrected["computed"] == {
            "flights.delays": 3, "flights.trailing_delay": 21, "flights.weekly_delays": 3, "flights.monthly_delays": 1,
        }  # fmt: skip
        late_now = of_late - minutes(flights[CORRECTED_DAY.isoformat()], late=True) + minutes(kept, late=True)
        assert pipeline.sums() == (late_now, late_now)

        # The way back keeps the correction: what it touched is computed with the code before, the rest is taken.
        pipeline.count_only_late(late=False)
        reverted = pipeline.varve("revert", str(promoted["number"]))
        assert reverted["computed"] == corrected["computed"]
        all_now = of_all - minutes(flights[CORRECTED_DAY.isoformat()]) + minutes(kept)
        assert pipeline.sums() == (all_now, all_now)
        assert pipeline.run_due() == []
    assert reader.errors == []
    states = [(number, number) for number in (of_all, of_late, late_now, all_now)]
    assert set(reader.seen) <= set(states)
    with capsys.disabled():
        sys.stdout.write(f"\n{sum(reader.seen.values()):,} answers in {len(reader.seen)} states, none mixed\n")
