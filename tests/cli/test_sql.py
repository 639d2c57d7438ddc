"""`varve check --against`, `fmt` and `show` on folders of SQL files."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from varve.cli.app import app
from varve.model.errors import VarveError

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "bigdataflow"


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
    done = CliRunner().invoke(app, ["check", str(copy), "--no-spark", "--against", str(EXAMPLE), "--json"])
    assert done.exit_code == 1
    (broken_use,) = json.loads(done.output)["breaks"]
    assert broken_use["place"] == "bigdataflow/products_sales.sql:15:24"
    assert "no longer has nb_sales" in broken_use["message"]


def test_an_added_column_breaks_nothing(copy: Path) -> None:
    file = copy / "receipts.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("  price DOUBLE", "  till STRING,\n  price DOUBLE"), encoding="utf-8")
    assert "no problems" in run("check", str(copy), "--no-spark", "--against", str(EXAMPLE))


def test_fmt_says_what_it_would_change_and_then_changes_it(copy: Path) -> None:
    file = copy / "receipts.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("PARTITIONED BY", "partitioned   by"), encoding="utf-8")
    with pytest.raises(VarveError, match=r"not laid out: .*receipts\.sql"):
        run("fmt", "--check", str(copy))
    run("fmt", str(copy))
    assert file.read_text(encoding="utf-8") == text


def test_show_prints_the_sql_that_runs() -> None:
    output = run("show", "bigdataflow.products_sales", "day=2022-03-31", "--sql", "--in", str(EXAMPLE))
    assert "--   partition_day = 2022-03-31" in output
    assert "SET TIME ZONE 'UTC';" in output
    assert "WHERE stores_sales.day = CAST('2022-03-31' AS STRING)" in output
    assert "SELECT product_id, SUM(nb_sales) AS nb_sales, SUM(revenue) AS revenue" in output
    assert "varve.scopes" not in output
    output = run("show", "bigdataflow.products_sales", "--sql", "--in", str(EXAMPLE))
    assert "WHERE stores_sales.day = CAST('2022-03-30' AS STRING)" in output
    assert "FROM varve.scopes AS __varve CROSS JOIN bigdataflow.stores_sales AS `stores_sales`" in output


def test_tasks_are_listed_with_their_scopes_as_of_any_moment() -> None:
    sales = ("tasks", "bigdataflow.stores_sales", "--in", str(EXAMPLE))
    listed = json.loads(run(*sales, "--json"))
    assert [task["partition"] for task in listed["tasks"]] == [
        f"day=2022-03-{day}/store={store}" for day in (31, 30) for store in ("Detroit", "Paris")
    ]
    assert listed["count"] == 4
    first = {name: value for name, value, _ in listed["tasks"][0]["scope"]}
    assert first == {
        "t": "2022-03-31T00:00:00Z", "t_end": "2022-04-01T00:00:00Z", "shop": "Detroit", "partition_day": "2022-03-31",
    }  # fmt: skip
    # Of files alone nobody knows the states.
    assert {task["state"] for task in listed["tasks"]} == {None}
    # On the 31st only the window of the day before is over.
    earlier = json.loads(run(*sales, "--at", "2022-03-31", "--json"))
    assert {task["partition"][:14] for task in earlier["tasks"]} == {"day=2022-03-30"}
    of_paris = (*sales, "store=Paris", "--from", "2022-03-30", "--to", "2022-03-30", "--limit", "1")
    assert [task["partition"] for task in json.loads(run(*of_paris, "--json"))["tasks"]] == [
        "day=2022-03-30/store=Paris"
    ]
    paris = run(*of_paris)
    assert "Paris" in paris
    assert "Detroit" not in paris
    assert "and 3 more" in run(*sales, "--limit", "1")
    assert "has no such task at 2022-03-01" in run(*sales, "--at", "2022-03-01")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("shop=Paris",), "'shop=Paris' names no partition; write column=value with day, store"),
        (("--from", "2022"), "'2022' is no key of dimension day"),
        (("--at", "yesterday"), "'yesterday' is no time"),
        (("store=Rome",), "'Rome' is no key of dimension store"),
    ],
)
def test_what_names_no_task_is_told(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(VarveError, match=message):
        run("tasks", "bigdataflow.stores_sales", *words, "--in", str(EXAMPLE))


def test_show_prints_the_seed_s_scope_and_dependencies() -> None:
    output = run("show", "bigdataflow.products_sales", "day=2022-03-31", "--in", str(EXAMPLE))
    assert "2022-03-31T00:00:00Z" in output
    assert "- bigdataflow.stores_sales/day=2022-03-31/store=Detroit" in output
    assert "- bigdataflow.stores_sales/day=2022-03-31/store=Paris" in output


def test_show_prints_what_a_file_says_of_its_batches(copy: Path) -> None:
    file = copy / "products_sales.sql"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("INSERT (", "SORTED BY (revenue) BOUNDS (nb_sales)\n  INSERT ("), encoding="utf-8")
    name = "bigdataflow.products_sales"
    assert "\nSORTED BY (revenue)\nBOUNDS (nb_sales)\n" in run("show", name, "--in", str(copy))
    shown = json.loads(run("show", name, "--in", str(copy), "--json"))
    assert shown["stored"] == {
        "store": "lake",
        "clauses": ["SORTED BY (revenue)", "BOUNDS (nb_sales)", "RETENTION 30 DAYS"],
    }


def test_graph_tells_which_column_is_made_of_which() -> None:
    output = run("graph", "--columns", "--in", str(EXAMPLE))
    assert "bigdataflow.products_sales.revenue <- bigdataflow.stores_sales.revenue" in output
    assert "bigdataflow.stores_sales.revenue <- bigdataflow.receipts.price" in output
    assert "bigdataflow.stores_sales.nb_sales <- no column" in output
    drawn = run("graph", "--columns", "--format", "mermaid", "--in", str(EXAMPLE))
    assert "bigdataflow_stores_sales__revenue --> bigdataflow_products_sales__revenue" in drawn
    dataset_graph = json.loads(run("graph", "--format", "json", "--in", str(EXAMPLE)))
    (sales,) = [
        dataset_values
        for dataset_values in dataset_graph["datasets"]
        if dataset_values["name"] == "bigdataflow.products_sales"
    ]
    assert sales["made_of"]["nb_sales"] == ["bigdataflow.stores_sales.nb_sales"]
    assert [upstream["dataset"] for upstream in sales["reads"]] == ["bigdataflow.stores_sales"]


@pytest.mark.parametrize("command", [("check", "--no-spark"), ("graph", "--in")])
def test_what_is_no_folder_is_not_found_to_be_without_problems(copy: Path, command: tuple[str, ...]) -> None:
    file = next(copy.glob("*.sql"))
    for place, told in ((file, "is a file; name the folder"), (copy / "nowhere", "is not there; name the folder")):
        done = CliRunner().invoke(app, [*command, str(place)])
        assert isinstance(done.exception, VarveError), done.output
        assert told in str(done.exception)


def test_a_module_of_a_package_below_that_cannot_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"below{uuid.uuid4().hex[:8]}"
    (folder / "sales").mkdir(parents=True)
    (folder / "sales" / "__init__.py").write_text("")
    (folder / "sales" / "revenue.py").write_text("import nosuch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(app, ["check", str(folder), "--no-spark"])
    assert done.exit_code == 1
    assert "No module named 'nosuch'" in done.output


def test_fmt_takes_the_mark_of_windows_and_refuses_what_is_no_utf_8(tmp_path: Path) -> None:
    text = "CREATE DATASET shop.sales (n INT)\nEXTERNAL;\n"
    file = tmp_path / "sales.sql"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert CliRunner().invoke(app, ["fmt", str(file)]).exit_code == 0
    file.write_bytes(text.replace("shop", "sh\xf6p").encode("latin-1"))
    done = CliRunner().invoke(app, ["fmt", str(file)])
    assert isinstance(done.exception, VarveError)
    assert "sales.sql:1: the file is no UTF-8" in str(done.exception)
    # A file before it is not laid out either, as the error says.
    before = tmp_path / "before.sql"
    before.write_text(text.replace("\n", " "))
    assert "Nothing was laid out" in str(CliRunner().invoke(app, ["fmt", str(tmp_path)]).exception)
    assert before.read_text() == text.replace("\n", " ")


def test_fmt_leaves_what_editors_lay_beside_files_alone(tmp_path: Path) -> None:
    text = "CREATE DATASET shop.sales (n INT) EXTERNAL;\n"
    (tmp_path / ".#new.sql").symlink_to("somebody@host.1:2")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    copy = tmp_path / ".ipynb_checkpoints" / "sales-checkpoint.sql"
    for file in (tmp_path / "sales.sql", copy):
        file.write_text(text, encoding="utf-8")
    assert run("fmt", str(tmp_path)).startswith("1 were laid out")
    assert copy.read_text(encoding="utf-8") == text
    # One that is named is meant.
    assert run("fmt", str(copy)).startswith("1 were laid out")
