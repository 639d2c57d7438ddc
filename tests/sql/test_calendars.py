"""`TIMESERIES(CALENDAR 'nyse', ...)`: windows of a file beside the SQL files, and what is read of them and by them."""

from __future__ import annotations

import datetime as dt
import errno
import io
from typing import TYPE_CHECKING, Any

import pendulum
import pytest

from varve.model.partitions.own_calendar import Calendar
from varve.planning.mapping.dataset_mapping import Dependency
from varve.sql.code.version import code_version
from varve.sql.sql_project import load, load_usable
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from pathlib import Path

    from varve.sql.files.sql_files import SqlFiles

NOW = pendulum.datetime(2026, 11, 30, 12, tz="America/New_York")
HOLIDAY = dt.date(2026, 11, 26)
NYSE = Calendar.of_weekdays("nyse", dt.date(2026, 11, 2), dt.date(2026, 12, 31), without=[HOLIDAY])
ZONE = "TIMEZONE 'America/New_York'"
FILES = {
    "prices": f"""CREATE DATASET market.prices (symbol STRING, price DOUBLE)
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(CALENDAR 'nyse', START '2026-11-02', {ZONE})
  INSERT (day = CAST(t AS DATE))
EXTERNAL;
""",
    "quotes": f"""CREATE DATASET market.quotes (symbol STRING, price DOUBLE)
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-11-09', END '2027-06-01', {ZONE})
  INSERT (hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH"))
EXTERNAL;
""",
    "closing": f"""CREATE DATASET market.closing
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(CALENDAR 'nyse', START '2026-11-02', {ZONE})
  LET first_hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH"), end_hour = DATE_FORMAT(t_end, "yyyy-MM-dd'T'HH")
  INSERT (day = CAST(t AS DATE))
AS
SELECT symbol, MAX(price) AS price FROM market.quotes WHERE hour >= first_hour AND hour < end_hour
GROUP BY symbol;
""",
    "weekly": f"""CREATE DATASET market.weekly
  PARTITIONED BY (week DATE)
  FOR t IN TIMESERIES(INTERVAL 1 WEEK, START '2026-11-02', {ZONE})
  INSERT (week = CAST(t AS DATE))
AS
SELECT symbol, AVG(price) AS price FROM market.prices
WHERE day >= CAST(t AS DATE) AND day < CAST(t_end AS DATE)
GROUP BY symbol;
""",
    "same_day": f"""CREATE DATASET market.same_day
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(CALENDAR 'nyse', START '2026-11-02', {ZONE})
  INSERT (day = CAST(t AS DATE))
AS
SELECT symbol, price FROM market.prices p WHERE p.day = CAST(t AS DATE);
""",
}


def project(folder: Path, calendar: str = NYSE.text, **files: str) -> Path:
    assets = folder / "assets"
    assets.mkdir(exist_ok=True)
    (assets / "nyse.calendar").write_text(calendar)
    for name, text in (files or FILES).items():
        (assets / f"{name}.sql").write_text(text)
    return assets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SqlFiles:
    return load(project(tmp_path_factory.mktemp("market")))


def upstream(files: SqlFiles, reader: str, key: str, of: str) -> list[str]:
    asset = files[f"market.{reader}"]
    partition = asset.dataset.partitioning.from_path(key)
    return sorted(read.path for read in asset.dependency(f"market.{of}").upstream_of(partition, now=NOW).keys)


def test_the_partitions_are_the_windows_of_the_file(files: SqlFiles) -> None:
    keys = files["market.prices"].dataset.partitioning.keys(now=NOW)
    days = [key["day"] for key in keys]
    assert days == [start.date() for start, _ in NYSE.windows if start.date() <= dt.date(2026, 11, 30)]
    assert HOLIDAY not in days


def test_a_week_reads_the_trading_days_that_it_covers(files: SqlFiles) -> None:
    assert upstream(files, "weekly", "week=2026-11-23", "prices") == [
        "day=2026-11-23", "day=2026-11-24", "day=2026-11-25", "day=2026-11-27",
    ]  # fmt: skip


def test_a_trading_day_reads_its_own_hours_and_none_of_the_weekend(files: SqlFiles) -> None:
    hours = upstream(files, "closing", "day=2026-11-23", "quotes")
    assert hours == [f"hour=2026-11-23T{hour:02}" for hour in range(24)]


def test_the_same_calendar_reads_the_same_day(files: SqlFiles) -> None:
    assert upstream(files, "same_day", "day=2026-11-27", "prices") == ["day=2026-11-27"]


def test_an_hour_of_a_gap_is_read_by_nobody(files: SqlFiles) -> None:
    closing, quotes = (files[f"market.{name}"].dataset.partitioning for name in ("closing", "quotes"))
    by_time = Dependency(closing, quotes)
    for hour in ("2026-11-26T10", "2026-11-28T10"):
        assert not list(by_time.readers_of(quotes.from_path(f"hour={hour}"), now=NOW).keys)
    (reader,) = by_time.readers_of(quotes.from_path("hour=2026-11-27T10"), now=NOW).keys
    assert reader.path == "day=2026-11-27"


def test_the_formatter_keeps_a_calendar(tmp_path: Path) -> None:
    file = project(tmp_path) / "prices.sql"
    assert "CALENDAR 'nyse'" in formatted(SourceFile(str(file), FILES["prices"]))


def told(folder: Path, calendar: str = NYSE.text, **files: str) -> str:
    with pytest.raises(SqlErrors) as refused:
        load(project(folder, calendar, **files))
    return str(refused.value)


def test_an_unknown_calendar_is_told_at_its_name_with_the_nearest(tmp_path: Path) -> None:
    text = FILES["prices"].replace("'nyse'", "'nysse'")
    assert "assets/prices.sql:3:32: there is no calendar 'nysse': no file nysse.calendar lies beside this file" in (
        message := told(tmp_path, prices=text)
    )
    assert "Did you mean nyse?" in message


def test_the_lock_of_an_editor_is_no_calendar_that_one_may_have_meant(tmp_path: Path) -> None:
    (assets := project(tmp_path, prices=FILES["prices"])).joinpath("nyse.calendar").unlink()
    (assets / ".#nyse.calendar").symlink_to("somebody@host.1:2")
    with pytest.raises(SqlErrors, match="there is no calendar 'nyse'") as caught:
        load(assets)
    assert "Did you mean" not in str(caught.value)


def test_a_calendar_that_nobody_may_read_is_told_and_stops_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = project(tmp_path, prices=FILES["prices"])
    (assets / "other.sql").write_text("CREATE DATASET shop.other (n INT) EXTERNAL;")
    assert {"shop.other"} < set(load_usable(assets)), "as the cache has it too"
    opened = io.open

    def refuse(file: Any, *options: Any, **named: Any) -> Any:
        if str(file).endswith("nyse.calendar"):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return opened(file, *options, **named)

    monkeypatch.setattr(io, "open", refuse)
    files = load_usable(assets)
    assert set(files) == {"shop.other"}
    (broken,) = files.broken
    assert "prices.sql:3:32: calendar 'nyse' cannot be read: assets/nyse.calendar: Permission denied." in broken.reason


def test_a_mistake_in_a_calendar_is_told_at_its_line(tmp_path: Path) -> None:
    faulty = "2026-11-23\n2026-11-24, 2026-11-28\n2026-11-25\n"
    message = told(tmp_path, faulty, prices=FILES["prices"])
    # It is the reason of the dataset that names it, which nothing was said of.
    (broken,) = load_usable(tmp_path / "assets").broken
    assert broken.errors
    assert "nyse.calendar:3:1: calendar nyse, line 3" in broken.reason
    assert message.startswith("assets/nyse.calendar:3:1: calendar nyse, line 3: the window from 2026-11-25 overlaps")
    assert "    2026-11-25\n    ^^^^^^^^^^" in message


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("2026-11-26", "START is not where a window begins; the nearest are '2026-11-25T00:00:00' and '2026-11-27T"),
        ("2026-10-01", "START is not where a window begins; its first window begins at '2026-11-02T00:00:00'."),
        ("2027-01-04", "its last window begins at '2026-12-31T00:00:00': add windows to the calendar"),
    ],
)
def test_a_start_that_begins_no_window_is_told_with_those_that_do(tmp_path: Path, start: str, problem: str) -> None:
    message = told(tmp_path, prices=FILES["prices"].replace("START '2026-11-02'", f"START '{start}'"))
    assert message.startswith("assets/prices.sql:3:")
    assert problem in message


def test_a_changed_calendar_is_read_again_though_the_sql_file_is_the_same(tmp_path: Path) -> None:
    longer = Calendar.of_weekdays("nyse", dt.date(2026, 11, 2), dt.date(2027, 1, 29), without=[HOLIDAY])
    before = load_usable(project(tmp_path))
    assert load_usable(tmp_path / "assets")["market.prices"].dataset == before["market.prices"].dataset
    after = load_usable(project(tmp_path, longer.text))
    counts = [
        files["market.prices"].dataset.partitioning.count(now=pendulum.datetime(2027, 2, 1))
        for files in (before, after)
    ]
    assert counts == [len(NYSE.windows), len(longer.windows)]
    # The rows of the windows that were there already are the same: nothing is computed again.
    versions = {code_version(files["market.weekly"].sql) for files in (before, after)}
    versions |= {code_version(files["market.closing"].sql) for files in (before, after)}
    assert len(versions) == 2
    assert (
        before["market.closing"].dataset.partitioning.time.cut == after["market.closing"].dataset.partitioning.time.cut
    )  # type: ignore[union-attr]
