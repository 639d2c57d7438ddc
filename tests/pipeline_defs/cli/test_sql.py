"""`varve check --against`, `fmt` and `show` on folders of SQL files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline_defs.cli.app import app
from pipeline_defs.model.errors import VarveError
from pipeline_defs.sql.errors import SqlErrors

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "bigdataflow"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "bigdataflow"))


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_renamed_column_breaks_its_direct_readers_only(copy: Path) -> None:
    file = copy / "stores_sales.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("nb_sales", "pieces"), encoding="utf-8")
    with pytest.raises(SqlErrors) as caught:
        run("check", str(copy), "--against", str(EXAMPLE))
    (problem,) = caught.value.problems
    assert problem.place == "bigdataflow/products_sales.sql:15:24"
    assert "no longer has nb_sales" in problem.message


def test_an_added_column_breaks_nothing(copy: Path) -> None:
    file = copy / "receipts.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("  price DOUBLE", "  till STRING,\n  price DOUBLE"), encoding="utf-8")
    assert "no problems" in run("check", str(copy), "--against", str(EXAMPLE))


def test_fmt_says_what_it_would_change_and_then_changes_it(copy: Path) -> None:
    file = copy / "receipts.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("PARTITIONED BY", "partitioned   by"), encoding="utf-8")
    with pytest.raises(VarveError, match=r"not laid out: .*receipts\.sql"):
        run("fmt", "--check", str(copy))
    run("fmt", str(copy))
    assert file.read_text(encoding="utf-8") == text


def test_show_prints_the_seed_s_scope_and_dependencies() -> None:
    said = run("show", "bigdataflow.products_sales", "day=2022-03-31", "--in", str(EXAMPLE))
    assert "2022-03-31T00:00:00Z" in said
    assert "- bigdataflow.stores_sales/day=2022-03-31/store=Detroit" in said
    assert "- bigdataflow.stores_sales/day=2022-03-31/store=Paris" in said
