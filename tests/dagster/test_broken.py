"""A file with an error stops no other dataset: it is shown as broken, its readers wait, and all data stays."""

from __future__ import annotations

import io
import json
import sys
import uuid
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from rich.console import Console

from tests.support.project import commands_on
from tests.support.sales import DAY, sales_dataset
from varve.cli.files import sql as sql_command
from varve.cli.plan import retire as retire_command
from varve.cli.plan import show as show_command
from varve.cli.selection import dataset_named
from varve.dagster.assets.broken import CHECK
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.python_files import broken_modules, python_assets
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.assets.sql_folders import sql_datasets
from varve.dagster.automation.retiring import removed
from varve.dagster.definitions import build_defs, definitions
from varve.dagster.discovery import load_project
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.project import Project
from varve.sql.sql_project import load_usable
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.catalog.catalog import Catalog
    from varve.planning.graph import Graph
    from varve.sql.files.sql_files import SqlFiles

HEAD = """CREATE DATASET shop.{name} {columns}PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01') LET today = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT (day = today)
"""
MISTAKE = "AS SELECT id, prise FROM shop.sales WHERE day = today"


def dataset(name: str, body: str, columns: str = "") -> str:
    return HEAD.format(name=name, columns=columns) + body


def reading(name: str) -> str:
    return f"AS SELECT id FROM shop.{name} WHERE day = today"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a root dataset, a good and a broken reader of it, and two that wait for the broken one."""
    sql_folder = tmp_path / f"assets_{uuid.uuid4().hex[:8]}"
    sql_folder.mkdir()
    texts = {
        "sales": dataset("sales", "EXTERNAL", "(id INT, price DOUBLE) "),
        "good": dataset("good", reading("sales")),
        "bad": dataset("bad", MISTAKE),
        "reader": dataset("reader", reading("bad")),
        "last": dataset("last", reading("reader")),
    }
    for name, text in texts.items():
        (sql_folder / f"{name}.sql").write_text(text)
    return sql_folder


def graph(files: SqlFiles) -> Graph:
    return graph_of(sql_assets(files))


def printed() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_the_others_can_be_used_and_only_the_author_of_the_mistake_is_blamed(folder: Path) -> None:
    files = load_usable(folder)
    assert set(files) == {"shop.sales", "shop.good"}
    broken = {broken_dataset.name: broken_dataset for broken_dataset in files.broken}
    assert {name: broken_dataset.state for name, broken_dataset in broken.items()} == {
        "shop.bad": "broken", "shop.reader": "on hold", "shop.last": "on hold",
    }  # fmt: skip
    (error,) = broken["shop.bad"].errors
    assert error.startswith(f"{folder.name}/bad.sql:3:15: unknown column prise. Did you mean price?")
    assert broken["shop.last"].waits_for == ("shop.reader",)
    assert "bad.sql:3:15" in broken["shop.last"].reason
    with pytest.raises(DatasetIsBroken, match=r"shop.bad is broken.*\n.*bad.sql:3:15"):
        files["shop.bad"]


@pytest.mark.parametrize("name", ["sales", "new", "deep/new"])
@pytest.mark.parametrize("what", ["a link that leads nowhere", "a folder"])
def test_a_file_that_cannot_be_read_is_broken_and_stops_no_other(folder: Path, name: str, what: str) -> None:
    (folder / "alone.sql").write_text(dataset("alone", "EXTERNAL", "(id INT) "))
    file = folder / f"{name}.sql"
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    if what == "a folder":
        file.mkdir()
    else:
        file.symlink_to("somewhere")
    files = load_usable(folder)
    assert set(files) == ({"shop.alone"} if name == "sales" else {"shop.alone", "shop.sales", "shop.good"})
    (broken,) = [each for each in files.broken if not each.name]
    assert broken.file == f"{folder.name}/{name}.sql"
    assert f"{name}.sql:1:1: it cannot be read: {'Is a' if what == 'a folder' else 'No such file'}" in broken.reason
    if name == "sales":
        good = graph(files).broken_dataset("shop.good")
        assert good is not None
        assert (good.state, good.waits_for) == ("on hold", ("shop.sales",))
        assert "sales.sql:1:1: it cannot be read" in good.reason
    sql_command.graph(console := printed(), form="text", folder=folder)
    assert f"broken: {folder.name}/{name}.sql" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(SqlErrors, match=rf"{name}\.sql:1:1: it cannot be read"):
        sql_command.check(printed(), folder, spark=False, as_json=False)


@pytest.mark.parametrize("what", ["a link that leads nowhere", "a folder"])
def test_a_module_that_cannot_be_read_is_broken_and_stops_no_other(folder: Path, what: str) -> None:
    file = folder / "made.py"
    if what == "a folder":
        file.mkdir()
    else:
        file.symlink_to("somewhere")
    assert set(load_usable(folder)) == {"shop.sales", "shop.good"}
    (broken,) = broken_modules(folder)
    assert broken.reason.startswith(f"{folder.name}/made.py: it cannot be read: ")
    assert sql_command.check(printed(), clean(folder), spark=False, as_json=False) is False


def clean(folder: Path) -> Path:
    """The folder without the file with a mistake, and those that read it."""
    for name in ("bad", "reader", "last"):
        (folder / f"{name}.sql").unlink()
    return folder


def test_graph_and_show_go_on_and_say_where_it_is_broken(folder: Path) -> None:
    console = printed()
    sql_command.graph(console, form="text", folder=folder)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "shop.good (day, lake)\n  <- shop.sales" in text
    assert "broken: shop.bad" in text
    assert "bad.sql:3:15: unknown column prise" in text
    assert "on hold: shop.last: it reads shop.reader" in text
    sql_command.graph(console := printed(), form="json", folder=folder)
    values = json.loads(console.file.getvalue())  # type: ignore[attr-defined]
    assert [broken_dataset["state"] for broken_dataset in values["broken"]] == ["broken", "on hold", "on hold"]
    show_command.show(console := printed(), "shop.sales", [], as_json=False, folder=folder)
    assert "read by shop.bad, which is broken" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(DatasetIsBroken, match=r"it reads shop\.bad"):
        show_command.show(printed(), "shop.reader", [], as_json=False, folder=folder)


def test_dagster_shows_it_as_what_cannot_be_run_with_a_check_that_fails(folder: Path) -> None:
    definitions = build_defs(sql_assets(sql_datasets(folder)))
    assets = definitions.resolve_asset_graph()
    bad, good, reader = (dg.AssetKey(["shop", name]) for name in ("bad", "good", "reader"))
    assert good in assets.executable_asset_keys
    assert not {bad, reader} & assets.executable_asset_keys
    assert {bad, reader} <= assets.get_all_asset_keys()
    assert "bad.sql:3:15" in str(assets.get(bad).description)
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_check_selection={dg.AssetCheckKey(bad, CHECK)}, asset_selection=set()
    )
    (checked,) = job.execute_in_process().get_asset_check_evaluations()
    assert not checked.passed
    assert "bad.sql:3:15" in str(checked.description)


def test_what_a_broken_file_declares_is_never_retired_as_if_nobody_declared_it(
    folder: Path, workbench: Workbench, catalog: Catalog
) -> None:
    sales = sales_dataset(StoreKind.LAKE, dimensions=(DAY,))
    first = sales.partitioning.key([DAY.parse("2013-01-01")])
    workbench.publish(sales, [first], [(first, "bread", 1)])
    db, table = sales.name.split(".")
    assert sales.name in removed(catalog, graph(load_usable(folder)))
    # Of this file only the name of the dataset can be read.
    (folder / "theirs.sql").write_text(f"CREATE DATASET {db}.{table} PARTITOINED BY (day DATE)")
    assert sales.name not in removed(catalog, graph(load_usable(folder)))
    # Of this file not even the name can be read, so that it may declare any dataset.
    (folder / "theirs.sql").write_text(f"CRAETE DATASET {db}.{table} PARTITIONED BY (day DATE)")
    assert removed(catalog, graph(load_usable(folder))) == {}


@pytest.mark.parametrize("mistake", ["PARTITOINED", "EXPECT x: prise > 0 PARTITIONED"])
def test_the_rejected_rows_of_a_broken_landing_dataset_are_not_nobodys(
    folder: Path, mistake: str, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    landed = dataset("landed", "REJECT UP TO 3 ROWS INTO shop.refused\nEXTERNAL", "(id INT) ")
    (folder / "landed.sql").write_text(landed)
    (folder / "refusals.sql").write_text(dataset("refusals", "AS SELECT file FROM shop.refused WHERE day = today"))
    whole = graph(load_usable(folder))
    assert {"shop.refused", "shop.refusals"} <= set(whole.datasets)
    (folder / "landed.sql").write_text(landed.replace("PARTITIONED", mistake))
    dataset_graph = graph(load_usable(folder))
    broken = dataset_graph.broken_dataset("shop.refused")
    assert broken is not None
    assert broken.name == "shop.landed"
    reader = dataset_graph.broken_dataset("shop.refusals")
    assert reader is not None
    assert (reader.state, reader.waits_for) == ("on hold", ("shop.refused",))
    commands_on(dataset_graph, monkeypatch)
    with pytest.raises(DatasetIsBroken, match=r"shop\.landed is broken"):
        retire_command.retire("shop.refused", dry_run=True)


def test_the_command_refuses_to_retire_it(folder: Path, monkeypatch: pytest.MonkeyPatch, catalog: Catalog) -> None:
    commands_on(graph(load_usable(folder)), monkeypatch)
    with pytest.raises(DatasetIsBroken, match=r"shop\.bad is broken"):
        retire_command.retire("shop.bad", dry_run=True)


def test_a_python_module_that_asks_for_it_waits_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "__init__.py").write_text("")
    (folder / "asking.py").write_text(
        "from pathlib import Path\nfrom varve.dagster.assets.sql_folders import sql_datasets\n"
        "BAD = sql_datasets(Path(__file__).parent)['shop.bad'].dataset\n"
    )
    (folder / "fine.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(folder.parent)
    assert python_assets(folder) == []
    (waiting,) = broken_modules(folder)
    assert waiting.file == f"{folder.name}/asking.py"
    assert "bad.sql:3:15" in waiting.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def made(:\n", "made.py:1: SyntaxError: invalid syntax"),
        ("X = 1\nY = X + 'a'\n", "made.py:2: TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
        ("import nothing_of_this_name\n", "made.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("from helping import fails\nfails()\n", "helping.py:2: KeyError: 'a'"),
    ],
    ids=["a mistake of grammar", "an error while it is imported", "a missing module", "an error of a helper"],
)
def test_a_python_module_that_cannot_be_imported_is_broken_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    folder = tmp_path / f"a{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "made.py").write_text(text)
    (folder / "fine.sql").write_text(
        "CREATE DATASET shop.fine (n BIGINT) PARTITIONED BY (store STRING) FOR store IN ('a', 'b') AS SELECT 1L AS n"
    )
    (tmp_path / "helping.py").write_text("def fails():\n    return {}['a']\n")
    (tmp_path / "varve.toml").write_text(f'assets = "{folder.name}"\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helping", raising=False)
    loaded = load_project(Project.find(tmp_path))
    assert [name for name in loaded.graph.datasets if name.startswith("shop.")] == ["shop.fine"]
    (broken,) = loaded.graph.broken
    assert broken.state == "broken"
    assert broken.headline.endswith(reason)
    # Which dataset it declares nobody knows: whoever asks for one that is not there is told where it may be.
    with pytest.raises(
        VarveError, match=rf"no dataset 'shop.made'; .* It may be in .*{folder.name}/made.py, which cann"
    ):
        dataset_named("shop.made", loaded.graph)
    assert (
        dg.AssetKey(["shop", "fine"]) in definitions(Project.find(tmp_path)).resolve_asset_graph().get_all_asset_keys()
    )
