"""The dataset that tests here publish, and what publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.lake.iceberg.builder import Builder

if TYPE_CHECKING:
    from varve.services.settings import Settings


@pytest.fixture
def builder(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Builder:
    # Else Polars warns that it could plan faster with one more package.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return Builder(settings)
