"""A folder may be named by a text, as in `varve.open("shop")`, wherever the API takes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import varve
from varve.project import NoProject

if TYPE_CHECKING:
    from pathlib import Path

SALES = """CREATE DATASET shop.sales (cents BIGINT)
PARTITIONED BY (day DATE) FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01') LET day = CAST(t AS DATE) EXTERNAL;
"""


def test_the_datasets_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sales.sql").write_text(SALES)
    named = varve.sql_datasets(str(tmp_path))["shop.sales"].dataset
    assert named == varve.sql_datasets(tmp_path)["shop.sales"].dataset


def test_what_is_due_in_a_folder_without_a_project_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoProject, match=r"pyproject\.toml"):
        varve.run_due(str(tmp_path))
