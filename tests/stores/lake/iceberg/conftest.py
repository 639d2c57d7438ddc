"""The dataset that tests here publish, and what publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.lake.iceberg.builder import Builder

if TYPE_CHECKING:
    from varve.services.settings import Settings


@pytest.fixture
def builder(settings: Settings) -> Builder:
    return Builder(settings)
