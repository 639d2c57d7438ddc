"""`varve init NAME`: what it writes, what it refuses, and that Dagster can load what it has written.

Not here: the demo and the tests of the project that it writes, which are run from the wheel (tests/test_wheel.py).
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.support.prepared import run_prepared
from varve.cli.init import CannotBegin, init, write_project
from varve.project import Project
from varve.services.distribution import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITTEN = {
    ".github/workflows/test.yml",
    ".gitignore",
    "Makefile",
    "README.md",
    "assets/__init__.py",
    "assets/best_sellers.py",
    "assets/daily_revenue.sql",
    "assets/daily_revenue.test.yaml",
    "assets/revenue.sql",
    "assets/sales.sql",
    "dagster.yaml",
    "pipeline_defs/__init__.py",
    "pipeline_defs/definitions.py",
    "pipeline_defs/demo.py",
    "pipeline_defs/sample.py",
    "pyproject.toml",
    "resources/__init__.py",
    "tests/__init__.py",
    "tests/test_datasets.py",
    "tests/test_definitions.py",
    "tests/test_pipeline.py",
    "workspace.yaml",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that lies in no project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_of(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_whole_project_is_written_and_nothing_else(here: Path) -> None:
    assert write_project(here / "web-orders") == len(WRITTEN)
    assert files_of(here) == {f"web-orders/{file}" for file in WRITTEN}
    for file in WRITTEN:
        text = (here / "web-orders" / file).read_text(encoding="utf-8")
        assert "{{" not in text, f"{file} has a field that nobody has filled in"
        assert text.endswith("\n")


def test_its_name_is_that_of_the_folder(here: Path) -> None:
    write_project(here / "web-orders")
    declared = tomllib.loads((here / "web-orders" / "pyproject.toml").read_text(encoding="utf-8"))
    assert declared["project"]["name"] == "web-orders"
    assert declared["tool"]["dagster"]["code_location_name"] == "web-orders"
    assert Project.find(here / "web-orders" / "assets").root == here / "web-orders"


def test_it_needs_this_varve_or_a_newer_one_and_the_services_of_this_machine_only_in_development(here: Path) -> None:
    write_project(here / "shop")
    declared = tomllib.loads((here / "shop" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = declared["dependencies"]
    assert needed == installed().requirement()
    assert needed.startswith("varve @ file://"), "the suite's own is an editable one"
    assert needed.replace("varve @", "varve[local] @") in declared["optional-dependencies"]["dev"]


@pytest.mark.parametrize("today", [dt.date(2026, 11, 22), dt.date(2027, 1, 4), dt.date(2028, 2, 29)])
def test_its_partitions_begin_on_a_monday_before_the_files_of_its_demo(here: Path, today: dt.date) -> None:
    write_project(here / "shop", today=today)
    for name in ("sales", "daily_revenue", "revenue"):
        text = (here / "shop" / "assets" / f"{name}.sql").read_text(encoding="utf-8")
        start = dt.date.fromisoformat(text.split("START '")[1][:10])
        assert start.weekday() == 0
        assert dt.timedelta(weeks=4) <= today - start < dt.timedelta(weeks=5)


def test_the_last_words_are_the_two_commands_to_go_on_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(Console(width=200), "shop")
    assert capsys.readouterr().out.splitlines()[-3:] == ["Next:", "  cd shop && make demo", "  make test"]


NO_NAMES = "Shop,1shop,shop!,shop orders,shop/orders,/shop,..,.shop,shop_,sh--op,été," + "x" * 51


@pytest.mark.parametrize("name", ["", *NO_NAMES.split(",")])
def test_what_is_no_name_is_refused(here: Path, name: str) -> None:
    with pytest.raises(CannotBegin, match=r"is no name for a project.*Nothing was written"):
        init(Console(), name)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["varve", "dagster", "dagster-postgres", "dagster_postgres", "pyspark"])
def test_the_name_of_a_package_that_it_would_depend_on_is_refused(here: Path, name: str) -> None:
    with pytest.raises(CannotBegin, match=f"^{name} is the name of a package"):
        init(Console(), name)
    assert list(here.iterdir()) == []


def test_a_folder_that_holds_something_stays_as_it_is(here: Path) -> None:
    (here / "shop").mkdir()
    (here / "shop" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CannotBegin, match=r"shop is there already, with notes.txt\. Nothing was written"):
        init(Console(), "shop")
    assert files_of(here) == {"shop/notes.txt"}
    assert (here / "shop" / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_file_of_that_name_stays_as_it_is(here: Path) -> None:
    (here / "shop").write_text("mine", encoding="utf-8")
    with pytest.raises(CannotBegin, match="is there already, and is no folder"):
        init(Console(), "shop")
    assert (here / "shop").read_text(encoding="utf-8") == "mine"


def test_an_empty_folder_is_filled(here: Path) -> None:
    (here / "shop").mkdir()
    init(Console(), "shop")
    assert files_of(here / "shop") == WRITTEN


def test_what_was_begun_and_failed_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_text

    def full_disk(file: Path, text: str, **options: str) -> int:
        if file.name == "workspace.yaml":
            raise OSError(28, "No space left on device")
        return whole(file, text, **options)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        init(Console(), "shop")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("file", "text"), [("pyproject.toml", "[tool.varve]\n"), ("varve.toml", "")])
def test_no_project_is_begun_within_another_one(here: Path, file: str, text: str) -> None:
    (here / file).write_text(text, encoding="utf-8")
    (here / "deeper").mkdir()
    with pytest.raises(CannotBegin, match=f"would lie in another project, that of {here / file}"):
        write_project(here / "deeper" / "shop")
    assert list((here / "deeper").iterdir()) == []


def test_a_folder_with_the_pyproject_of_something_else_is_no_project(here: Path) -> None:
    (here / "pyproject.toml").write_text('[project]\nname = "mine"\n', encoding="utf-8")
    init(Console(), "shop")
    assert Project.find(here / "shop").root == here / "shop"


def run(folder: Path, *arguments: str | Path) -> str:
    """A command of this environment in a folder; its output. It must end with 0."""
    done = run_prepared(*arguments, cwd=folder, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "shop"
    write_project(folder)
    return folder


@pytest.mark.needs_seconds
def test_its_sql_has_no_mistake(shop: Path) -> None:
    varve = Path(sys.executable).with_name("varve")
    assert "3 SQL datasets, no problems" in run(shop, varve, "check", "--no-spark")
    assert "shop.best_sellers" in run(shop, varve, "graph")


@pytest.mark.needs_seconds
def test_its_python_is_in_order(shop: Path) -> None:
    ruff = ["-m", "ruff", "check", "--isolated", "--line-length", "120", "--target-version", "py311"]
    run(
        shop,
        *ruff,
        "--select",
        "A,ARG,B,C4,D,DTZ,E,F,I,N,PTH,RET,SIM,UP,W",
        "--ignore",
        "N812,D103,D203,D213,D401",
        ".",
    )
    run(shop, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--check", ".")


@pytest.mark.needs_seconds
def test_its_test_of_the_pipeline_passes_with_datasets_of_ones_own_beside_the_samples(shop: Path) -> None:
    script = """
import json
import pytest
from tests.test_pipeline import test_every_line_of_the_files_gets_into_the_view as test

def answers(**rows):
    listed = [{"dataset": f"shop.{name}", "rows": count} for name, count in rows.items()]
    return lambda *words: json.dumps({"datasets": listed})

sample = {"sales": 30, "daily_revenue": 30, "best_sellers": 10, "revenue": 10}
test(answers(**sample, bread=5))
for wrong in (sample | {"revenue": 9}, {"sales": 30}):
    with pytest.raises(AssertionError):
        test(answers(**wrong))
"""
    run(shop, "-c", script)


@pytest.mark.needs_seconds
def test_without_what_its_readme_says_to_delete_with_the_demo_everything_else_works(shop: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(shop, tmp_path / "shop")
    _, told = (mine / "README.md").read_text(encoding="utf-8").split("## When your own files arrive")
    for file in re.findall(r"`([a-z_/]+\.py)`", told):
        (mine / file).unlink()
    pyproject, makefile = mine / "pyproject.toml", mine / "Makefile"
    pyproject.write_text(re.sub(r"(?m)^commands = .*\n", "", pyproject.read_text(encoding="utf-8")), encoding="utf-8")
    makefile.write_text(re.sub(r"(?m)^demo:.*\n\t.*\n", "", makefile.read_text(encoding="utf-8")), encoding="utf-8")

    demo = run_prepared(Path(sys.executable).with_name("varve"), "demo", cwd=mine, env=os.environ)
    assert "No such command 'demo'" in demo.stderr
    run(mine, "-m", "pytest", "--collect-only", "--quiet")
    asked = re.findall(r"run: make (\w+)", (mine / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert asked, "the workflow calls make"
    targets = re.findall(r"(?m)^(\w+):", makefile.read_text(encoding="utf-8"))
    assert set(asked) <= set(targets), f"the workflow asks for {asked}, and there are {targets}"
