"""Which batches `varve diff` compares: its two sides, before a row is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.catalog.test_history import go_back, publish
from tests.support.sales import PARIS, ZURICH
from varve.catalog.history.history import History
from varve.cli.rows.sides import State, sides_of
from varve.model.errors import UnknownPartition

if TYPE_CHECKING:
    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset


def test_before_an_instant_is_what_came_before_it_though_its_batch_came_back_later(
    catalog: Catalog, lake_sales: Dataset
) -> None:
    history = History(catalog.connection)
    first = publish(catalog, lake_sales, PARIS)
    second, at_second = publish(catalog, lake_sales, PARIS), history.now()
    third = publish(catalog, lake_sales, PARIS)
    go_back(catalog, lake_sales, {PARIS: second})

    def compared(last: str | None) -> list[object]:
        return [side.batches[PARIS.path].batch_id for side in sides_of(history, lake_sales, [], None, last)]

    assert compared(at_second.isoformat()) == [first, second]
    assert compared(None) == [third, second]


def test_a_first_batch_that_came_back_later_had_none_before_it(catalog: Catalog, lake_sales: Dataset) -> None:
    history = History(catalog.connection)
    first, at_first = publish(catalog, lake_sales, ZURICH), history.now()
    publish(catalog, lake_sales, ZURICH)
    go_back(catalog, lake_sales, {ZURICH: first})
    with pytest.raises(UnknownPartition, match="no partition had another batch before"):
        sides_of(history, lake_sales, [], None, at_first.isoformat())


def test_the_states_of_partitions_are_counted_in_whole_words() -> None:
    assert [State.DIFFERS.counted(count) for count in (1, 15)] == ["1 differs", "15 differ"]
    assert [state.counted(1_200) for state in State if state is not State.DIFFERS] == [
        "1,200 only before",
        "1,200 only after",
        "1,200 with the same batch",
        "1,200 with equal content",
    ]
