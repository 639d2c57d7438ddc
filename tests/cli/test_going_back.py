"""`varve evolve` there and back, and to other windows: what was kept is taken, and no row is there twice."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

import varve
from tests.cli.test_environments import DAYS, Store, shop_at_rest  # noqa: F401 - a fixture
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PIECES = """CREATE DATASET {db}.pieces ({columns})
  COMMENT 'One row per delivery.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (files = 'pieces_{{day:%Y-%m-%d}}.csv', extra_columns = 'ignore');
"""
AS_SENT = "product STRING, pieces BIGINT, note STRING"
READINGS = """CREATE DATASET {db}.readings (value BIGINT)
  COMMENT 'One row per reading.'
  STORED IN LAKE
  PARTITIONED BY (at TIMESTAMP)
  FOR t IN TIMESERIES(INTERVAL 1 {grain}, START '{start}', END '{end}', TIMEZONE 'UTC')
  INSERT (at = t)
EXTERNAL OPTIONS (source = 'landing', files = '{files}');
"""


def written(shop: Store, name: str, text: str) -> None:
    (shop.root / f"{shop.db}_assets" / f"{name}.sql").write_text(text, encoding="utf-8")
    shop.reload()


def landing(shop: Store, name: str) -> Path:
    folder = shop.root / "landing" / shop.db / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_what_an_evolution_that_was_given_up_has_left_is_not_what_a_dataset_goes_back_to(shop_at_rest: Store) -> None:  # noqa: F811
    shop, days = shop_at_rest, DAYS[:2]

    def declare(columns: str) -> None:
        written(shop, "pieces", PIECES.format(db=shop.db, columns=columns, start=DAYS[0]))

    def notes() -> list[tuple[dt.date, str | None]]:
        with varve.open(shop.root) as data:
            return sorted(tuple(row) for row in data.table(f"{shop.db}.pieces").select("day", "note").collect())

    declare(AS_SENT)
    for day in days:
        file = landing(shop, "pieces") / f"pieces_{day}.csv"
        file.write_text("product,pieces,note\npen,3000000000,by hand\n", encoding="utf-8")
    shop.run_due()
    declare(AS_SENT.replace("BIGINT", "INT"))
    with pytest.raises(VarveError, match="3000000000"):
        shop.varve("evolve", "shop.pieces")
    declare(AS_SENT)
    shop.varve("env", "drop", f"evolve_{shop.db}_pieces")
    declare("article STRING RENAMED FROM product, pieces BIGINT")
    assert shop.json("evolve", "shop.pieces")["rewritten"] == {f"{shop.db}.pieces": 2}
    declare(AS_SENT)
    done = shop.json("evolve", "shop.pieces")
    assert (done["taken"], done["rewritten"]) == ({f"{shop.db}.pieces": 2}, {})
    assert (notes(), done["without_values"]) == ([(day, "by hand") for day in days], {})
    assert shop.run_due() == []

    # What came while nobody asked for the notes has none, which is said; the file has them.
    declare("product STRING, pieces DECIMAL(20, 0)")
    shop.varve("evolve", "shop.pieces")
    file = landing(shop, "pieces") / f"pieces_{days[1]}.csv"
    file.write_text("product,pieces,note\npen,4000000000,by phone\n", encoding="utf-8")
    assert shop.run_due() == [f"pieces {days[1]}"]
    declare(AS_SENT)
    assert "pieces: note is NULL where it is rewritten, as" in shop.varve("evolve", "shop.pieces", "--dry-run")
    done = shop.json("evolve", "shop.pieces")
    assert (done["taken"], done["rewritten"]) == ({f"{shop.db}.pieces": 1}, {f"{shop.db}.pieces": 1})
    assert done["without_values"] == {f"{shop.db}.pieces": ["note"]}
    assert notes() == [(days[0], "by hand"), (days[1], None)]
    shop.varve("backfill", "start", "shop.pieces", f"day={days[1]}")
    shop.run_due()
    assert notes() == [(days[0], "by hand"), (days[1], "by phone")]


def test_the_file_of_a_day_is_no_file_of_the_hour_with_which_it_begins(shop_at_rest: Store) -> None:  # noqa: F811
    shop, (first, second) = shop_at_rest, DAYS[:2]
    end = second + dt.timedelta(days=1)

    def declare(grain: str, files: str) -> None:
        text = READINGS.format(db=shop.db, grain=grain, start=first, end=end, files=files)
        written(shop, "readings", text)

    def values() -> list[tuple[str, int]]:
        with varve.open(shop.root) as data:
            rows = data.table(f"{shop.db}.readings").selectExpr("date_format(at, 'dd HH')", "value").collect()
        return sorted(tuple(row) for row in rows)

    declare("DAY", "d_{at:%Y-%m-%d}.csv")
    folder = landing(shop, "readings")
    for day in (first, second):
        (folder / f"d_{day}.csv").write_text("value\n1\n2\n", encoding="utf-8")
    shop.run_due()
    assert len(values()) == 4
    declare("HOUR", "h_{at:%Y%m%dT%H}.csv")
    for day, hours in ((first, (0, 7)), (second, (7,))):
        for hour in hours:
            (folder / f"h_{day:%Y%m%d}T{hour:02}.csv").write_text(f"value\n{hour}\n", encoding="utf-8")
    looked = shop.json("evolve", "shop.readings", "--dry-run")
    paths = {f"at={first} 00%3A00%3A00", f"at={first} 07%3A00%3A00", f"at={second} 07%3A00%3A00"}
    assert set(looked["due"][f"{shop.db}.readings"]) == paths
    done = shop.json("evolve", "shop.readings", "--incomplete")
    assert done["computed"] == {f"{shop.db}.readings": 3}
    assert values() == [(f"{first:%d} 00", 0), (f"{first:%d} 07", 7), (f"{second:%d} 07", 7)]
    # Nor does a sensor take the file of a day for that of an hour.
    assert shop.run_due() == []
    assert shop.rows("select count(*) from varve.arrival where dataset = 'shop.readings'") == [(3,)]


COPIED = """CREATE DATASET {db}.copied
  COMMENT 'One row per reading, by its hour in UTC.'
  STORED IN WAREHOUSE
  PARTITIONED BY (at TIMESTAMP)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '{start}', END '{end}', TIMEZONE 'UTC')
  INSERT (at = t)
AS SELECT readings.value FROM {db}.readings WHERE readings.at = t;
"""


def test_no_row_is_there_twice_when_the_hours_of_what_is_read_move_to_another_zone(shop_at_rest: Store) -> None:  # noqa: F811
    """The hours of Zurich begin before those of UTC, so that its last ones have no hour of Zurich."""
    shop, day = shop_at_rest, dt.date(2026, 1, 15)

    def declare(zone: str) -> None:
        text = READINGS.format(
            db=shop.db, grain="HOUR", start=day, end=day + dt.timedelta(days=1), files="h_{at:%Y%m%dT%H}.csv"
        )
        written(shop, "readings", text.replace("'UTC'", f"'{zone}'"))

    declare("UTC")
    written(shop, "copied", COPIED.format(db=shop.db, start=day, end=day + dt.timedelta(days=1)))
    folder = landing(shop, "readings")
    for hour in range(24):
        (folder / f"h_{day:%Y%m%d}T{hour:02}.csv").write_text(f"value\n{hour}\n", encoding="utf-8")
    shop.run_due()
    copied = "select extract(hour from at at time zone 'UTC')::int, value from shop.copied order by 1"
    assert shop.rows(copied) == [(hour, hour) for hour in range(24)]
    declare("Europe/Zurich")
    done = shop.json("evolve", "shop.readings")
    assert done["computed"] == {f"{shop.db}.readings": 24, f"{shop.db}.copied": 24}
    assert shop.rows(copied) == [(hour, hour + 1) for hour in range(23)]
    assert shop.run_due() == []
    # In production, where START is no code, nothing is emptied without a word.
    text = (shop.root / f"{shop.db}_assets" / "readings.sql").read_text()
    written(shop, "readings", text.replace(f"START '{day}'", f"START '{day} 12:00:00'"))
    assert shop.run_due() == []
    assert shop.rows(copied) == [(hour, hour + 1) for hour in range(23)]
    assert "on hold" in shop.varve("why", "shop.copied", f"at={day}T05")
