"""`varve import` of a dataset whose windows are those of a calendar: its file is read where the new one will lie."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from varve.cli.files.importing import _write
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """CREATE DATASET market.prices (price DOUBLE) PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(CALENDAR 'nyse', START '2026-11-23', TIMEZONE 'America/New_York') INSERT (day = CAST(t AS DATE))
EXTERNAL OPTIONS (source = 'project', project = 'market');
"""


def imported() -> bool:
    return _write(Console(file=StringIO()), "market.prices", TEXT, "declared in", only_print=False)


def test_the_calendar_is_the_one_beside_the_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = tmp_path / "project" / "datasets"
    datasets.mkdir(parents=True)
    (tmp_path / "project" / "varve.toml").write_text('assets = "datasets"\n')
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path / "project"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SqlErrors, match=r"datasets/market_prices.sql:.* there is no calendar 'nyse'"):
        imported()
    assert list(datasets.iterdir()) == []
    (datasets / "nyse.calendar").write_text("2026-11-23\n2026-11-24\n")
    assert imported()
    assert "CALENDAR 'nyse'" in (datasets / "market_prices.sql").read_text()
