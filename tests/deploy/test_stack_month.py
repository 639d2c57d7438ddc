"""Twenty-eight days through the sensors of the stack, on hosts of its own, are what the embedded pipeline makes.

The same files, two installations: one process after the other with embedded servers, and the kit's services with S3, a
cluster and a metastore. Rows are compared partition by partition, read by clients that know nothing of Varve.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline_defs.definitions import graph
from resources.partner import FLIGHTS_COLUMNS, PLANES_COLUMNS, WEATHER_COLUMNS, planes, send, weather_by_hour
from tests.deploy.clients import in_the_lake, in_the_warehouse, land, published
from tests.e2e.project import Project, Reader, days, flights, hours_of, wait_until
from varve.model.dataset import StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.deploy.processes import Stack
    from varve.model.dataset import Dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5_400), pytest.mark.xdist_group("stack")]

DAYS = days(dt.date(2013, 1, 1), 28)
RUN_DUE = "import logging, varve; logging.disable(logging.INFO); varve.run_due('.')"
# Other tests of the stack send other months.
OF_JANUARY = {"day": "< '2013-02-01'", "hour": "< '2013-02-01'", "week": "< '2013-02-01'"}


def test_they_are_what_the_embedded_pipeline_makes_of_them(stack: Stack, tmp_path: Path) -> None:
    with Project.of_its_own("of-28-days") as embedded:
        for first in range(0, len(DAYS), 7):
            sent(embedded.settings.landing, DAYS[first : first + 7])
            done = embedded.run_afresh("-c", RUN_DUE)
            assert done.code == 0, done.output
        # What is captured from a database has none here.
        counts = {name: count for name in graph.datasets if (count := len(embedded.current(name)))}
        reader = Reader(embedded)
        try:
            expected = contents(counts, reader.sql, lambda query: rows_of(embedded, query))
        finally:
            reader.close()
    assert counts["flights.departures"] == len(DAYS)
    assert counts["flights.weather"] == len({hour for day in DAYS for hour in hours_of(day)})
    assert counts["flights.delays"] == 3 * len(DAYS)
    assert counts["flights.weekly_delays"] >= 3 * 3
    assert all(expected.values()), "an empty answer would prove nothing"
    assert len(expected) == 8

    sent(tmp_path, DAYS)
    land(stack, tmp_path)
    wait_until(
        lambda: all(published(stack).get(name, 0) >= count for name, count in counts.items()),
        seconds=3_600, what=f"{counts} were published", log=stack.log("daemon"),
    )  # fmt: skip
    found = contents(counts, lambda query: in_the_lake(stack, query), lambda query: in_the_warehouse(stack, query))
    for name, rows in expected.items():
        assert found[name] == rows, name


def sent(landing: str | Path, which: Sequence[dt.date]) -> None:
    """The partner sends the files of some days, and those of the year."""
    folder = Path(landing) / "flights"
    observed = weather_by_hour(hours := [hour for day in which for hour in hours_of(day)])
    for day in which:
        send(folder / "departures", str(day), FLIGHTS_COLUMNS, flights(day))
    for hour in hours:
        send(folder / "weather", hour, WEATHER_COLUMNS, observed[hour])
    send(folder / "fleet", "2013", PLANES_COLUMNS, planes())


def rows_of(project: Project, query: str) -> list[tuple[Any, ...]]:
    with project.catalog() as catalog:
        return catalog.connection.execute(query.encode()).fetchall()


def contents(
    names: Iterable[str], lake: Callable[[str], Any], warehouse: Callable[[str], Any]
) -> dict[str, list[list[str]]]:
    """Of each partition of each dataset how many rows it has, and a sum over their values."""
    found = {}
    for name in names:
        dataset = graph.datasets[name]
        ask, query = (lake, of_spark) if dataset.store == StoreKind.LAKE else (warehouse, of_postgresql)
        found[name] = sorted([str(value) for value in row] for row in ask(query(dataset)))
    return found


def of_spark(dataset: Dataset) -> str:
    """Doubles are means over rows in any order, so that their last bits differ."""
    values = [f"round({name}, 6)" if kind == "DOUBLE" else name for name, kind in columns(dataset)]
    keys = ", ".join(column.name for column in dataset.partition_columns)
    total = f"CAST(sum(CAST(xxhash64({', '.join(values)}) AS DECIMAL(38, 0))) AS STRING)"
    return f"SELECT {keys}, count(*), {total} FROM {dataset.name}{where(dataset)} GROUP BY {keys}"


def of_postgresql(dataset: Dataset) -> str:
    """The same for a view."""
    values = [f"round({name}::numeric, 6)" if kind == "DOUBLE" else name for name, kind in columns(dataset)]
    keys = ", ".join(column.name for column in dataset.partition_columns)
    row = f"concat_ws('|', {', '.join(values)})"
    return (
        f"select {keys}, count(*), md5(string_agg({row}, chr(10) order by {row})) "
        f"from {dataset.name}{where(dataset)} group by {keys}"
    )


def columns(dataset: Dataset) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in dataset.schema.columns]


def where(dataset: Dataset) -> str:
    conditions = [
        f"{column.name} {OF_JANUARY[column.name]}"
        for column in dataset.partition_columns if column.name in OF_JANUARY
    ]  # fmt: skip
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
