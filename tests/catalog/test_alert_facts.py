"""The catalog's facts for alerts on real PostgreSQL. What follows from them: tests/planning/test_alerts.py."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_planning import DAILY, begin, day, finish
from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.observe import metric_statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.partitions.key import PartitionKey


@pytest.fixture
def catalog(fresh_database: str) -> Iterator[Catalog]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        opened = Catalog(connection)
        opened.ensure_schema()
        yield opened


def publish(catalog: Catalog, *keys: PartitionKey) -> float:
    """Publish and return when, in seconds since 1970."""
    finish(catalog, begin(catalog, DAILY, *keys))
    return last_publish(catalog)


def last_publish(catalog: Catalog) -> float:
    row = catalog.connection.execute(
        "select extract(epoch from max(published_at))::float8 from varve.publish"
    ).fetchone()
    assert row is not None
    return float(row[0])


def follow(catalog: Catalog) -> None:
    """What the projection notes once it has followed."""
    catalog.projected("p.daily", catalog.lagging("p.daily").values())
    catalog.forget_withdrawn("p.daily", catalog.withdrawn("p.daily"))


def lag(catalog: Catalog) -> tuple[int, float | None]:
    """How many partitions the Hive table lags, and since when."""
    (counted,) = [row[4] for row in catalog.connection.execute(metric_statements.CURRENT) if row[0] == "p.daily"]
    facts = AlertCatalog(catalog.connection).projections()
    assert bool(facts) is bool(counted)
    if facts:
        assert facts[0].text.startswith(f"it lags by {counted} partition")
    return counted, facts[0].since if facts else None


def test_a_projection_lags_since_the_first_publish_that_it_has_not_followed(catalog: Catalog) -> None:
    first = publish(catalog, day(1))
    publish(catalog, day(1))
    assert lag(catalog) == (1, first), "a table that shows nothing yet"
    follow(catalog)
    assert lag(catalog) == (0, None)
    # It is published more often than people wait for the table: it lags since the first one.
    behind = publish(catalog, day(1))
    publish(catalog, day(1))
    publish(catalog, day(2))
    assert lag(catalog) == (2, behind)
    follow(catalog)
    # A batch that was shown long ago and is again: what was followed before it counts no more.
    (batch,) = catalog.current("p.daily", [day(1)]).values()
    publish(catalog, day(1))
    follow(catalog)
    back = catalog.lock_partitions(DAILY, [day(1)], run_id="back")
    catalog.repoint(back, {day(1): batch.batch_id})
    catalog.release(back)
    follow(catalog)
    assert lag(catalog) == (0, None)
    behind = publish(catalog, day(1))
    assert lag(catalog) == (1, behind)
    # While it is moved it is not known what it shows.
    catalog.projecting("p.daily", [day(1).path])
    behind = publish(catalog, day(1))
    assert lag(catalog) == (1, behind)


def test_a_projection_lags_while_it_may_show_what_was_withdrawn(catalog: Catalog) -> None:
    publish(catalog, day(1), day(2))
    follow(catalog)
    build = replace(catalog.lock_partitions(DAILY, [day(1)], run_id="retire"), holds=False)
    catalog.repoint(build, {})
    catalog.release(build)
    assert lag(catalog) == (1, last_publish(catalog))
    follow(catalog)
    assert lag(catalog) == (0, None)
    # And of a partition that the catalog has never heard of.
    catalog.invalidate_projection("p.daily", [], ["day=2024-01-09"])
    assert lag(catalog) == (1, last_publish(catalog))
    follow(catalog)
    again = publish(catalog, day(1))
    assert lag(catalog) == (1, again)
