"""An input that is there before the windows that read it are over: each is computed when it is, by the next tick."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.planning.test_open_windows import asked
from tests.planning.test_reconcile import DAY, START, dataset
from tests.planning.world import World
from varve.dagster.assets.sql_folders import planned_reads
from varve.model.reads import Custom, Reads
from varve.planning.graph import Graph
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

DAYS = (
    "PARTITIONED BY (day DATE) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01') LET day = CAST(t AS DATE) "
    "INSERT (day = day)"
)
MONTHS = (
    "PARTITIONED BY (month STRING) FOR t IN TIMESERIES(INTERVAL 1 MONTH, START '2026-01-01') "
    "LET m = DATE_FORMAT(t, 'yyyy-MM') INSERT (month = m)"
)
SHOPS = (
    "PARTITIONED BY (day DATE, shop STRING) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01'), "
    "shop IN ('a', 'b') LET day = CAST(t AS DATE) INSERT (day = day, shop = shop)"
)
NOON = dt.datetime(2026, 11, 27, 12, tzinfo=dt.UTC)


def world_of(*files: str) -> World:
    assets = compiled([SourceFile(f"{place}.sql", text) for place, text in enumerate(files)], {})
    datasets = {name: asset.dataset for name, asset in assets.items()}
    reads = {name: tuple(planned_reads(asset).values()) for name, asset in assets.items()}
    return World(Graph(datasets, reads, dict.fromkeys(datasets, "")), NOON.timestamp())


def publish(world: World, name: str, path: str) -> None:
    """As whoever makes the dataset does."""
    world._history[name, path] = {1: "rows"}
    world.set(name, path, batch=1, published=world.now)


@pytest.mark.parametrize(
    ("where", "windows"),
    [
        ("r.day = :day", {27}),
        ("r.day BETWEEN DATE_SUB(:day, 2) AND :day", {27, 28, 29}),
    ],
)
@pytest.mark.parametrize("every_hours", [1, 5, 50])
def test_a_daily_file_that_comes_at_noon(where: str, windows: set[int], every_hours: int) -> None:
    world = world_of(
        f"CREATE DATASET shop.rates (rate DOUBLE) {DAYS} EXTERNAL",
        f"CREATE DATASET shop.priced (rate DOUBLE) {DAYS} WAIT AT LEAST 1 AS SELECT r.rate FROM shop.rates r "
        f"WHERE {where}",
    )
    world.tick()
    publish(world, "shop.rates", "day=2026-11-27")
    world.tick()
    assert not world.facts["shop.priced"]
    while world.now < NOON.timestamp() + 5 * 86_400:
        world.advance(every_hours * 3_600)
        world.until_quiet()
    assert set(world.facts["shop.priced"]) == {f"day=2026-11-{day}" for day in windows}
    assert all(world.builds["shop.priced", path] == 1 for path in world.facts["shop.priced"])


def test_a_file_of_a_month_that_comes_in_it_makes_each_shop_and_day_as_it_ends() -> None:
    world = world_of(
        f"CREATE DATASET shop.plan (n INT) {MONTHS} EXTERNAL",
        f"CREATE DATASET shop.share (n INT) {SHOPS} AS SELECT p.n FROM shop.plan p "
        "WHERE p.month = DATE_FORMAT(:day, 'yyyy-MM')",
        f"CREATE DATASET shop.after (n INT) {SHOPS} AS SELECT s.n FROM shop.share s "
        "WHERE s.day = :day AND s.shop = :shop",
    )
    world.tick()
    publish(world, "shop.plan", "month=2026-11")
    world.until_quiet()
    made = {1: 26, 2: 27, 3: 28, 4: 29}
    for days, last in made.items():
        assert len(world.facts["shop.share"]) == 2 * last
        assert world.facts["shop.after"].keys() == world.facts["shop.share"].keys()
        world.advance(dt.timedelta(days=days, hours=12).total_seconds() + NOON.timestamp() - 12 * 3_600 - world.now)
        world.until_quiet()


def test_a_function_without_its_inverse_is_asked_of_the_window_that_ends() -> None:
    upstream, reader = dataset("hours", DAY), dataset("reader", DAY)
    reads = Reads(upstream, {"day": Custom("tests.planning.test_early_inputs:same_day", "day")})
    graph = Graph({each.name: each for each in (upstream, reader)}, {reader.name: (reads,)}, {})
    world = World(graph, START.add(days=2, hours=12).timestamp())
    world.tick()
    publish(world, upstream.name, "day=2024-01-03")
    assert asked(world.tick()) == {}
    world.advance(86_400)
    assert asked(world.tick()) == {"reader": {"day=2024-01-03"}}


def same_day(day: dt.date) -> list[dt.date]:
    return [day]
