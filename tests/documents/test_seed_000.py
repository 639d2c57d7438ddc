"""`docs/examples/seeds/000`: weekly tables behind one view; a week is loaded again whole, and no other is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.dagster.test_growing_assets import Runner
from tests.support.project import ROOT
from varve.dagster.assets.sql_assets import sql_assets
from varve.services.postgres import connect
from varve.sql.sql_project import compiled, load_usable
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.stores.warehouse.examine import tables_under

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from varve.services.settings import Settings

pytestmark = pytest.mark.spark

EXAMPLE = ROOT / "docs" / "examples" / "seeds" / "000"
VIEW = "output_invalidation_pattern.all_weeks"
# A file an hour, named by its moment (`ts_nodash`), in the folder of its week.
FILES = {
    "2019-04-01/20190401T000000": "a,b\nx,1\n", "2019-04-01/20190401T010000": "a,b\ny,2\n",
    "2019-04-08/20190408T000000": "a,b\nx,3\n", "2019-04-15/20190415T000000": "a,b\nx,4\n",
}  # fmt: skip


@dataclass
class Weeks:
    """What the view showed after each step, and which tables it stood on."""

    shown: list[list[tuple[object, ...]]] = field(default_factory=list)
    tables: list[set[str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def query(settings: Settings) -> Callable[[str], list[tuple[object, ...]]]:
    def query(text: str) -> list[tuple[object, ...]]:
        with connect(settings) as connection:
            return connection.execute(text).fetchall()

    return query


@pytest.fixture(scope="module")
def weeks(settings: Settings, spark: SparkSession, query: Callable[[str], list[tuple[object, ...]]]) -> Weeks:
    """Three weeks, loaded; then the partner sends the file of the second one again, with other data, and one more."""
    del spark
    assets = sql_assets(load_usable(EXAMPLE).checked())
    folder = Path(settings.landing) / "output_invalidation_pattern" / "all_weeks"
    found = Weeks()

    def send(name: str, text: str) -> None:
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    with dg.DagsterInstance.ephemeral() as instance:
        runner = Runner(assets, instance)  # type: ignore[arg-type]
        for name, text in FILES.items():
            send(name, text)
        for reason in ("all_weeks arrived", "all_weeks re-sent"):
            assert runner.ran() == [reason]
            found.shown.append(query(f"SELECT week::text, a, b FROM {VIEW} ORDER BY week, a, b"))
            with connect(settings) as connection:
                found.tables.append(
                    {f"output_invalidation_pattern_periods.{table}" for table in tables_under(connection, VIEW)}
                )
            send("2019-04-08/20190408T000000", "a,b\nx,30\n")
            send("2019-04-08/20190408T010000", "a,b\nz,31\n")
    return found


def week_of(tables: set[str], start: str) -> str:
    (table,) = [table for table in tables if start in table]
    return table


def test_the_view_is_the_union_of_the_weekly_tables(
    weeks: Weeks, query: Callable[[str], list[tuple[object, ...]]]
) -> None:
    assert weeks.shown[0] == [
        ("2019-04-01", "x", 1), ("2019-04-01", "y", 2), ("2019-04-08", "x", 3), ("2019-04-15", "x", 4)
    ]  # fmt: skip
    assert len(weeks.tables[0]) == len(weeks.tables[1]) == 3
    union = " UNION ALL ".join(f"SELECT a, b FROM {table}" for table in weeks.tables[1])
    assert sorted(query(union)) == sorted(query(f"SELECT a, b FROM {VIEW}"))


def test_a_week_that_was_sent_again_is_another_table_and_the_others_are_the_same_ones(weeks: Weeks) -> None:
    assert weeks.shown[1] == [
        ("2019-04-01", "x", 1), ("2019-04-01", "y", 2), ("2019-04-08", "x", 30), ("2019-04-08", "z", 31),
        ("2019-04-15", "x", 4),
    ]  # fmt: skip
    before, after = weeks.tables
    assert before - after == {week_of(before, "2019_04_08")}
    assert after - before == {week_of(after, "2019_04_08")}


def test_no_row_of_a_table_is_updated_or_deleted(
    weeks: Weeks, query: Callable[[str], list[tuple[object, ...]]]
) -> None:
    replaced = week_of(weeks.tables[0], "2019_04_08")
    assert query(f"SELECT a, b FROM {replaced}") == [("x", 3)]


def test_a_week_is_not_named_by_its_number_which_comes_every_year() -> None:
    text = (EXAMPLE / "all_weeks.sql").read_text(encoding="utf-8")
    text = text.replace("week DATE", "week STRING").replace("CAST(t AS DATE)", "CONCAT('week_', WEEKOFYEAR(t))")
    with pytest.raises(SqlErrors) as caught:
        compiled([SourceFile("all_weeks.sql", text)], {})
    assert "week" in str(caught.value)
