"""The dataset that tests here publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sales import sales_dataset
from varve.model.dataset import StoreKind

if TYPE_CHECKING:
    from varve.model.dataset import Dataset


@pytest.fixture
def sales() -> Dataset:
    """Sales in the warehouse, in a database of their own."""
    return sales_dataset(StoreKind.WAREHOUSE)
