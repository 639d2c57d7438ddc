"""`varve import` of a dataset that the project declares itself: an error, and no second declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from varve.cli.files.importing import import_table
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from pathlib import Path

FILE = """CREATE DATASET own_import.{name} (price INT)
PARTITIONED BY (day DATE)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-23') LET day = CAST(t AS DATE)
{body};
"""


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project that makes a dataset, and follows a table of others."""
    folder = tmp_path / "own_import_datasets"
    folder.mkdir()
    (tmp_path / "varve.toml").write_text(f'assets = "{folder.name}"\n')
    (folder / "sales.sql").write_text(FILE.format(name="sales", body="EXTERNAL"))
    view = "EXTERNAL VIEW OPTIONS (source = 'table', table = 'own_import.clicks')"
    (folder / "clicks.sql").write_text(FILE.format(name="clicks", body=view))
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path))
    # No service is asked, and none is started.
    monkeypatch.setenv("VARVE_POSTGRES_URL", "postgresql://nobody@127.0.0.1:9/none?connect_timeout=1")
    return folder


@pytest.mark.parametrize(("name", "only_print"), [("", False), ("", True), ("own_import.others", False)])
def test_what_the_project_makes_itself_is_no_table_of_others(datasets: Path, *, name: str, only_print: bool) -> None:
    with pytest.raises(VarveError, match=r"^own_import\.sales is a dataset of this project.* Nothing was written"):
        import_table(Console(), "own_import.Sales", name=name, copies=False, only_print=only_print)
    assert {file.name for file in datasets.glob("*.sql")} == {"sales.sql", "clicks.sql"}


def test_a_dataset_that_another_file_declares_is_not_declared_once_more(datasets: Path) -> None:
    for table, name in (("own_import.clicks", ""), ("dumps.sales", "own_import.sales")):
        declared = name or table
        with pytest.raises(VarveError, match=rf"^{declared} is declared in this project already\. Nothing was written"):
            import_table(Console(), table, name=name, copies=False, only_print=False)
    assert {file.name for file in datasets.glob("*.sql")} == {"sales.sql", "clicks.sql"}
