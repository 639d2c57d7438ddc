"""SQL files that read datasets of Python files, and Python files that read datasets of SQL files."""

from __future__ import annotations

import importlib
import sys
import uuid
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.dagster.test_sql_assets import HEAD, materialise, rows
from varve.cli.files.sql import check, graph
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.python_files import broken_modules
from varve.dagster.assets.sql_assets import assets_of
from varve.dagster.assets.sql_folders import forget_files, loaded
from varve.model.errors import VarveError
from varve.sql.cache import Cache
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.workbench import Workbench

STOCK = """
import pendulum

from varve.dagster.assets.datasets import dataset_asset
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2022, 3, 1), pendulum.datetime(2022, 3, 5))
STOCK = Dataset(
    name="{db}.stock",
    partitioning=Partitioning((DAY,)),
    schema=Schema((Column("product", ColumnType.STRING), Column("pieces", ColumnType.{kind}))),
    store=StoreKind.LAKE,
    comment="What lies there.",
)


@dataset_asset(STOCK)
def stock(context):
    days = [key["day"] for key in context.resources.builds.of(context).build.partitions]
    rows = [("x", day.day, day) for day in days]
    return context.resources.spark.spark_session.createDataFrame(rows, "product STRING, pieces {kind}, day DATE")
"""
TOTAL = "AS SELECT SUM(pieces) AS pieces FROM {db}.stock WHERE stock.day BETWEEN DATE_SUB(today, 1) AND today"


class Files:
    """A folder of SQL and Python files, which is a package."""

    def __init__(self, root: Path) -> None:
        self.db = f"d{uuid.uuid4().hex[:8]}"
        self.folder = root / f"{self.db}_assets"
        self.folder.mkdir()
        (self.folder / "__init__.py").write_text("", encoding="utf-8")
        self.python("stock", STOCK.format(db=self.db, kind="BIGINT"))
        self.sql("total", "pieces BIGINT", TOTAL)

    def sql(self, name: str, columns: str, body: str) -> None:
        text = HEAD.format(db=self.db, name=name, columns=columns) + body.format(db=self.db)
        (self.folder / f"{name}.sql").write_text(text, encoding="utf-8")

    def python(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8")
        self.forget()

    def forget(self) -> None:
        """Forget the modules of the folder, so that they are imported again as in a new process."""
        for name in [name for name in sys.modules if name.partition(".")[0] == self.folder.name]:
            del sys.modules[name]

    def check(self, against: str | None = None) -> tuple[bool, str]:
        """Whether nothing is broken, and what is printed."""
        console = Console(record=True, width=200, quiet=False, file=StringIO())
        return check(console, self.folder, against=against, spark=False, as_json=False), console.export_text()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python would take a module that is written twice within a second from its bytecode cache.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    new_files = Files(tmp_path)
    yield new_files
    new_files.forget()


def counts(files: Files) -> tuple[int, int]:
    cache = Cache.beside(files.folder)
    loaded(files.folder, cache)
    return cache.hits, cache.misses


@pytest.mark.spark
def test_a_query_reads_what_a_python_function_computes(files: Files, workbench: Workbench) -> None:
    assets = assets_of(loaded(files.folder), files.folder)
    assert materialise(assets, f"{files.db}.stock", "2022-03-01", "2022-03-02").success
    assert materialise(assets, f"{files.db}.total", "2022-03-01", "2022-03-02").success
    assert rows(workbench, assets, f"{files.db}.total") == [(1, "2022-03-01"), (3, "2022-03-02")]


def test_check_and_graph_know_what_python_declares(files: Files) -> None:
    files.check()
    console = Console(record=True, width=200)
    graph(console, form="text", folder=files.folder)
    assert f"{files.db}.total (day, lake)\n  <- {files.db}.stock   day: " in console.export_text()
    files.sql("total", "pieces BIGINT", TOTAL.replace("SUM(pieces)", "SUM(peices)"))
    with pytest.raises(SqlErrors, match=r"(?s)total.sql:6:.*peices.*Did you mean .*pieces"):
        files.check()
    files.sql("total", "pieces BIGINT", TOTAL.replace(".stock WHERE", ".stok WHERE"))
    with pytest.raises(SqlErrors, match=f"nobody declares {files.db}.stok. Did you mean {files.db}.stock"):
        files.check()


def test_another_declaration_in_python_is_noticed_and_another_function_is_not(files: Files) -> None:
    assert counts(files) == (0, 1)
    assert counts(files) == (1, 0)
    files.python("stock", STOCK.format(db=files.db, kind="BIGINT").replace("What lies there.", "Pieces."))
    assert counts(files) == (1, 0)
    files.python("stock", STOCK.format(db=files.db, kind="DOUBLE"))
    with pytest.raises(SqlErrors, match="pieces is declared BIGINT, but the query gives DOUBLE"):
        loaded(files.folder)
    files.sql("total", "pieces DOUBLE", TOTAL)
    assert counts(files) == (0, 1)
    files.python("stock", STOCK.format(db=files.db, kind="DOUBLE").replace("2022, 3, 1", "2022, 2, 1"))
    assert counts(files) == (0, 1)


def test_a_python_file_may_ask_for_sql_datasets_below_its_own(files: Files) -> None:
    asks = (
        "from pathlib import Path\nfrom varve.dagster.assets.sql_folders import loaded\n"
        f"TOTAL = loaded(Path(__file__).parent)['{files.db}.total'].dataset\n"
    )
    # One module is imported before the file that declares the dataset, one after it.
    files.python("early", asks)
    files.python("zz_late", asks)
    assert {asset.dataset.table for asset in assets_of(loaded(files.folder), files.folder)} == {"stock", "total"}
    files.forget()
    files.python("stock", STOCK.format(db=files.db, kind="BIGINT") + asks)
    assert loaded(files.folder)[f"{files.db}.total"].upstreams[f"{files.db}.stock"].table == "stock"
    files.python("stock", asks + STOCK.format(db=files.db, kind="BIGINT"))
    with pytest.raises(VarveError, match=f"nobody declares {files.db}.stock") as caught:
        loaded(files.folder)
    assert f"or in another module; it is {files.folder.name}.early, {files.folder.name}.stock, " in str(caught.value)


def test_a_python_file_between_two_of_sql_asks_for_the_one_above_it_first(files: Files) -> None:
    """As a project's first Python dataset does: partitioned like a SQL dataset, and read by another one."""
    files.sql("first", "n BIGINT", "AS SELECT 1L AS n")
    above = (
        "from pathlib import Path\nimport varve\nFILES = varve.sql_datasets(Path(__file__).parent)\n"
        f"FIRST = FILES['{files.db}.first'].dataset\n"
    )
    below = f"\ndef later():\n    return FILES['{files.db}.total'].dataset\n"
    files.python("stock", above + STOCK.format(db=files.db, kind="BIGINT") + below)
    assert {asset.dataset.table for asset in assets_of(loaded(files.folder), files.folder)} == {
        "stock",
        "total",
        "first",
    }
    # After the import all of them are there.
    stock = importlib.import_module(f"{files.folder.name}.stock")
    assert stock.later().table == "total"
    assert loaded(files.folder)[f"{files.db}.first"].dataset == stock.FIRST
    forget_files()
    files.forget()
    # Imported by somebody else first.
    assert importlib.import_module(f"{files.folder.name}.stock").FIRST.table == "first"
    forget_files()
    # One that asks for what reads its own dataset is told so, as its own error.
    circle = f"TOTAL = FILES['{files.db}.total'].dataset\n"
    files.python("stock", above + circle + STOCK.format(db=files.db, kind="BIGINT"))
    (broken,) = broken_modules(files.folder)
    assert broken.file == f"{files.folder.name}/stock.py"
    assert f"stock.py:5: NotDeclaredYet: {files.db}.total reads what is not declared yet. " in broken.errors[0]
    assert (
        f"must declare its own above that, or in another module; it is {files.folder.name}.stock." in broken.errors[0]
    )


def test_a_dataset_in_a_folder_below_is_found_where_that_is_a_package_and_told_where_it_is_not(files: Files) -> None:
    below = files.folder / "deep" / "er"
    below.mkdir(parents=True)
    text = STOCK.format(db=files.db, kind="BIGINT")
    (files.folder / "stock.py").unlink()
    (below / "stock.py").write_text(text, encoding="utf-8")
    # A program for spark-submit, and tests, lie there too: neither is imported.
    for name in ("test_it.py", "conftest.py", "__main__.py"):
        (below / name).write_text("raise RuntimeError('imported')", encoding="utf-8")
    (broken,) = broken_modules(files.folder)
    assert broken.file == f"{files.folder.name}/deep/er/stock.py"
    assert "declares a dataset, and its folder is no package" in broken.errors[0]
    (files.folder / "deep" / "__init__.py").touch()
    assert [each.file for each in broken_modules(files.folder)] == [broken.file]
    (below / "__init__.py").touch()
    importlib.invalidate_caches()
    assert broken_modules(files.folder) == []
    assert loaded(files.folder)[f"{files.db}.total"].upstreams[f"{files.db}.stock"].table == "stock"
    (below / "wrong.py").write_text("import nothing_of_this_name", encoding="utf-8")
    files.forget()
    (wrong,) = broken_modules(files.folder)
    assert wrong.file == f"{files.folder.name}/deep/er/wrong.py"


@pytest.mark.parametrize("name", ["ab_test.py", "test_results.py", "tests.py", "test_lab/results.py"])
def test_a_dataset_whose_file_or_package_below_is_called_like_a_test_is_found_and_told_all_the_same(
    files: Files, name: str
) -> None:
    below = files.folder / "deep"
    (below / name).parent.mkdir(parents=True)
    (files.folder / "stock.py").rename(below / name)
    (below / name).with_name("__init__.py").touch()
    (below / "__init__.py").unlink(missing_ok=True)
    (broken,) = broken_modules(files.folder)
    assert broken.file == f"{files.folder.name}/deep/{name}"
    (below / "__init__.py").touch()
    # What is called so in a folder of tests is one, whatever it declares.
    of_tests = below / "test"
    of_tests.mkdir()
    (of_tests / "__init__.py").touch()
    (of_tests / "test_stock.py").write_text(
        "raise RuntimeError('imported')\n" + (below / name).read_text(encoding="utf-8"), encoding="utf-8"
    )
    importlib.invalidate_caches()
    assert broken_modules(files.folder) == []
    assert loaded(files.folder)[f"{files.db}.total"].upstreams[f"{files.db}.stock"].table == "stock"


def test_what_editors_and_systems_lay_beside_files_declares_nothing(files: Files) -> None:
    """Locks of Emacs lead nowhere, JupyterLab copies what is opened, and macOS writes bytes of its own."""
    below = files.folder / "deep"
    below.mkdir()
    for folder, name in ((files.folder, "total.sql"), (files.folder, "stock.py"), (below, "new.py")):
        (folder / f".#{name}").symlink_to("somebody@host.1:2")
        (folder / f"._{name}").write_bytes(b"\x00\x05\x16\x07varve function")
    copies = files.folder / ".ipynb_checkpoints"
    copies.mkdir()
    for file in ("total.sql", "stock.py"):
        stem, _, ending = file.partition(".")
        (copies / f"{stem}-checkpoint.{ending}").write_bytes((files.folder / file).read_bytes())
    assert set(loaded(files.folder)) == {f"{files.db}.total"}
    assert broken_modules(files.folder) == []
    well, told = files.check()
    assert well, told


def test_python_is_not_imported_for_files_that_read_none_of_it(files: Files) -> None:
    files.sql("total", "pieces BIGINT", "AS SELECT 1L AS pieces")
    files.python("stock", "raise RuntimeError('imported')")
    assert set(loaded(files.folder)) == {f"{files.db}.total"}


def test_a_dataset_that_both_declare_is_refused(files: Files) -> None:
    files.sql("stock", "product STRING, pieces BIGINT", "EXTERNAL")
    files.sql("other", "n BIGINT", "AS SELECT COUNT(*) AS n FROM {db}.nothing WHERE nothing.day = today")
    with pytest.raises(SqlErrors, match=f"{files.db}.stock is also declared in Python"):
        loaded(files.folder)


@pytest.mark.needs_seconds
def test_against_knows_the_columns_of_python(files: Files, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "total.sql").write_text((files.folder / "total.sql").read_text(encoding="utf-8"), encoding="utf-8")
    (before / "stock.py").write_text((files.folder / "stock.py").read_text(encoding="utf-8"), encoding="utf-8")
    assert files.check(against=str(before))[0]
    files.sql("reader", "n BIGINT", "AS SELECT MAX(pieces) AS n FROM {db}.total WHERE total.day = today")
    (before / "reader.sql").write_text((files.folder / "reader.sql").read_text(encoding="utf-8"), encoding="utf-8")
    files.sql("total", "parts BIGINT", TOTAL.replace("AS pieces", "AS parts"))
    well, told = files.check(against=str(before))
    assert not well
    assert "reader.sql:6:" in told


def test_the_graph_has_both(files: Files) -> None:
    graph = graph_of(assets_of(loaded(files.folder), files.folder))
    assert {dataset.table for dataset in graph.upstreams(graph.datasets[f"{files.db}.total"])} == {"stock"}
