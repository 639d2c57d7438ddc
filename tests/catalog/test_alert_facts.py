"""Alerts in the catalog on real PostgreSQL: their facts, and whose they are.

What follows from the facts: tests/planning/test_alerts.py. What is sent: tests/dagster/test_alerts.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_planning import DAILY, begin, day, finish
from varve.catalog.catalog import Catalog
from varve.catalog.code.owners import Owners
from varve.catalog.history.alerts.alerts import Alerts
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.catalog.history.alerts.messages import Messages
from varve.catalog.history.alerts.watch import Watch
from varve.model.dataset import StoreKind
from varve.observe import metric_statements
from varve.planning.operations.conditions import (
    AlertFacts,
    AlertIdentity,
    AlertKind,
    Condition,
    DiskFacts,
    conditions,
)

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


def test_a_view_that_somebody_has_dropped_is_told_until_it_is_there_again(catalog: Catalog) -> None:
    shown = replace(DAILY, store=StoreKind.WAREHOUSE)
    facts = AlertCatalog(catalog.connection)
    finish(catalog, begin(catalog, shown, day(1)))
    (found,) = [fact for fact in facts.projections() if fact.kind == "view"]
    told = conditions(AlertFacts(now=0.0, datasets={shown.name: shown}, projections=[found]))
    (text,) = (each.text for each in told.values())
    assert set(told) == {AlertIdentity(AlertKind.PROJECTION, shown.name, "view")}
    assert f"varve doctor {shown} names what makes it again" in text
    catalog.connection.execute("create schema p; create view p.daily as select 1 as x")
    assert [fact for fact in facts.projections() if fact.kind == "view"] == []


def look(catalog: Catalog, project: str, *identities: AlertIdentity) -> tuple[int, int]:
    """A project evaluates its alerts, and notes them for its channel; returns how many were opened and closed."""
    of_others = Owners(catalog.connection, project).others()
    held = [Condition(identity, "so it is") for identity in identities]
    updated = Alerts(catalog.connection, project).update(held, list(AlertKind), 1_000_000.0, of_others)
    Messages(catalog.connection, project).note(["team"])
    return updated


def told(catalog: Catalog, project: str) -> set[tuple[str, str]]:
    """What the channel of a project is still to be told: the event, and of which dataset."""
    messages = Messages(catalog.connection, project)
    waiting = messages.waiting("team")
    assert messages.counts().get("team", 0) == len(waiting)
    return {(message.event, message.identity.dataset) for message in waiting}


def test_each_project_of_a_catalog_has_its_own_disks_and_its_own_daemon(catalog: Catalog) -> None:
    """Another machine has another disk of that name, and another Dagster another daemon."""
    full, roomy = DiskFacts("home", 95, 100, "one"), DiskFacts("home", 5, 100, "two")

    Owners(catalog.connection, "shop").claim(["shop.own"])
    Owners(catalog.connection, "bureau").claim(["bureau.own"])

    def looks(project: str, disk: DiskFacts, daemon_seen: float) -> tuple[int, int]:
        facts = AlertFacts(now=1_000_000.0, datasets={}, disks=[disk], daemon_seen=daemon_seen, project=project)
        return look(catalog, project, *conditions(facts))

    assert looks("shop", full, 1.0) == (2, 0)
    # It looks, although it owns nothing: its name was not changed.
    Owners(catalog.connection, "shop").leave(["shop.own"])
    Watch(catalog.connection, "shop").take("one", 900.0)
    assert looks("bureau", roomy, 0.0) == (0, 0)
    assert told(catalog, "bureau") == set()
    assert looks("bureau", replace(full, machine="two"), 1.0) == (2, 0)
    assert told(catalog, "bureau") == {("opened", "")}
    assert looks("shop", roomy, 0.0) == (0, 2)
    subjects = {(alert.identity.kind, alert.identity.subject) for alert in Alerts(catalog.connection).list()}
    assert subjects == {(AlertKind.DISK, "project bureau: home"), (AlertKind.DAEMON, "project bureau")}


def test_alerts_go_with_their_datasets_to_another_project_and_with_all_to_another_name(catalog: Catalog) -> None:
    given, kept = (AlertIdentity(AlertKind.GIVEN_UP, name, "all") for name in ("s.given", "s.kept"))
    disk = AlertIdentity(AlertKind.DISK, "", "home")
    before, beside = Owners(catalog.connection, "before"), Owners(catalog.connection, "beside")
    before.claim(["s.given", "s.kept"])
    beside.claim(["b.own"])
    assert look(catalog, "before", given, kept, disk) == (3, 0)
    # Another project leaves all of it alone, and is not told of it.
    assert look(catalog, "beside") == (0, 0)
    assert told(catalog, "beside") == set()
    # A dataset is handed over: its alert goes on, or ends, in the other project.
    beside.take(["s.given"], by="ann")
    assert look(catalog, "before", kept, disk) == (0, 0)
    assert look(catalog, "beside", given) == (0, 0)
    assert told(catalog, "beside") == {("opened", "s.given")}
    assert look(catalog, "beside") == (0, 1)
    # The project gets another name, and owns its datasets by that.
    Owners(catalog.connection, "after").take(["s.kept"], by="ann")
    assert look(catalog, "after", disk) == (0, 1)
    assert told(catalog, "after") == {("opened", "s.kept"), ("closed", "s.kept"), ("opened", "")}
    assert look(catalog, "after") == (0, 1)
    assert Alerts(catalog.connection).list() == []
    assert look(catalog, "beside", given, disk) == (2, 0)
