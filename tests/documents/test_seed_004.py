"""`docs/examples/seeds/004`: the changes of the post on upstream data, and the table that it says they make."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.project import ROOT
from varve.cdc.event import ChangeType, Counts
from varve.cdc.protocol import change_events
from varve.cdc.protocol.order import by_timestamp
from varve.cdc.resolve.event_frame import event_frame
from varve.cdc.resolve.resolve import resolve

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession

    from varve.cdc.event import ChangeEvent

pytestmark = pytest.mark.spark

FOLDER = ROOT / "docs" / "examples" / "seeds" / "004"
Resolve = Callable[..., list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def post() -> ModuleType:
    """The module of the example: the rows in the lake, the events, and the table's shape."""
    spec = importlib.util.spec_from_file_location("customers_of_the_post", FOLDER / "customers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def resolved(spark: SparkSession, post: ModuleType) -> Resolve:
    """The table that the lake's rows and some events make, sorted."""

    def resolved(*events: ChangeEvent) -> list[tuple[object, ...]]:
        ordered, ambiguous = by_timestamp(events)
        assert ambiguous == 0
        lake = spark.createDataFrame(list(post.DATALAKE), "id STRING, name STRING")
        resolution = resolve(
            lake, event_frame(spark, ordered), post.CUSTOMERS, Counts.of(ordered, list(post.COLUMN_NAMES))
        )
        assert resolution.quarantined is None or resolution.quarantined.isEmpty()
        table = resolution.replaced(lake).select("id", "name").unionByName(resolution.after)
        return sorted(tuple(row) for row in table.collect())

    return resolved


def test_alice_is_angela_and_bobs_id_is_carols_in_whatever_order_the_changes_come(
    resolved: Resolve, post: ModuleType
) -> None:
    assert resolved(*reversed(post.CHANGE_EVENTS)) == [("id1", "Angela"), ("id2", "Carol")]


def test_a_changed_key_takes_its_row_with_it(resolved: Resolve, post: ModuleType) -> None:
    """What the post iterates to a fixed point for: an update that moves a row, and an update of the row that moved."""
    update = post.CHANGE_EVENTS[0]
    moved = replace(update, timestamp="9", column_values=("id3", "Angela"))
    # '10' is after '9': timestamps are compared as numbers.
    renamed = replace(update, timestamp="10", column_values=("id3", "Angie"), old_key_values=("id3",))
    assert resolved(*post.CHANGE_EVENTS, moved, renamed) == [("id2", "Carol"), ("id3", "Angie")]


def test_the_events_have_the_names_of_the_posts_model(post: ModuleType) -> None:
    for event in post.CHANGE_EVENTS:
        assert event.change_type in {"insert", "update", "delete"}
        assert bool(event.column_names) == bool(event.column_values) == (event.change_type != ChangeType.DELETE)
        assert bool(event.old_key_names) == bool(event.old_key_values) == (event.change_type != ChangeType.INSERT)


def test_the_posts_frame_as_lines_of_a_file_makes_the_same_table(resolved: Resolve, post: ModuleType) -> None:
    lines = (FOLDER / "changes.jsonl").read_text(encoding="utf-8").splitlines()
    events = list(change_events.read(lines, relation="datalake.customers", key=post.OLD_KEY_NAMES))
    assert [(each.change_type, each.new, each.old_key) for each in events] == [
        (each.change_type, each.new, each.old_key) for each in post.CHANGE_EVENTS
    ]
    assert resolved(*events) == [("id1", "Angela"), ("id2", "Carol")]
