"""What `dagster asset materialize` publishes is what the author's text gives in a plain Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.project import Reader
from tests.e2e.written.made_up import PRICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.project import Project

MODULE = "tests.e2e.written.definitions"
SHOPS = ("L'Aquila", "O'Brien")
# The text of stats.sql, in one line, over rows that are written down here.
PLAIN = (
    "SELECT 'O''Brien' AS name, TO_CHAR(SUM(price), 'S99999') AS sum, PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY "
    "price DESC) AS quarter, COUNT_IF(product = 'O''Brien') AS his FROM VALUES {} AS prices(product, price)"
)


def test_the_published_example_has_the_rows_of_plain_spark(project: Project) -> None:
    both = ("--select", "written/prices,written/stats")
    # Both shops in one query, then one of them again by itself.
    for partitions in (("--partition-range", "...".join(SHOPS)), ("--partition", SHOPS[1])):
        done = project.run("-m", "dagster", "asset", "materialize", "-m", MODULE, *both, *partitions)
        assert done.code == 0, done.output
        reader = Reader(project)
        try:
            published = reader.sql("SELECT * FROM written.stats ORDER BY store")
            expected = [[*reader.sql(text)[0], shop] for shop, text in plain()]
        finally:
            reader.close()
        assert [[*row[:4], row[-1]] for row in published] == expected
        assert {row[0] for row in published} == {"O'Brien"}
        assert {row[3] for row in published} == {1}


def plain() -> Iterator[tuple[str, Any]]:
    for shop in SHOPS:
        rows = [f"('{product.replace(chr(39), chr(92) + chr(39))}', {price * len(shop)})" for product, price in PRICES]
        yield shop, PLAIN.format(", ".join(rows))
