"""`varve test` and the pytest plugin as people run them, in a project that `varve init` has written."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.documents.pages import blocks
from tests.support.environment import clean_environment
from tests.support.prepared import run_prepared
from varve.cli.init import write_project

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

# Processes with a Spark of their own, on a machine that may be busy.
pytestmark = [pytest.mark.needs_seconds, pytest.mark.timeout(1_200)]

HERE = "tests/testing/test_command.py"
VARVE = str(Path(sys.executable).with_name("varve"))
# All command lines run in one process, as one Spark is enough: what each has printed, and its exit code.
COMMANDS = """
import json, sys
from contextlib import redirect_stdout
from io import StringIO
from typer.testing import CliRunner
from varve.cli.app import app
done = {}
for words in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, words)
    done[" ".join(words)] = {"code": result.exit_code, "out": result.output, "error": str(result.exception or "")}
print("RESULT" + json.dumps(done))
"""
WRONG = """\
- name: too many pieces
  dataset: shop.daily_revenue
  partition: {{day: {start}, store: Paris}}
  inputs:
    shop.sales: [{{product: tea, pieces: 2, cents: 3}}]
  expected:
    - {{product: tea, pieces: 3, cents: 6}}
"""
RUNS = (
    ["test"],
    ["test", "-k", "given away or too many", "--junit", "out/junit.xml"],
    ["test", "shop.daily_revenue", "--fail-fast", "--json"],
    ["test", "run", "-k", "sum"],
    ["test", "-k", "no such words"],
    ["test", "shop.revenue"],
)


def environment() -> dict[str, str]:
    kept = clean_environment()
    return {**kept, "COLUMNS": "120", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script of this environment, or `python` with its words."""
    program, *others = words
    script = [] if program == sys.executable else [Path(sys.executable).with_name(Path(program).name)]
    return run_prepared(*script, *others, cwd=folder, env=environment(), seconds=600)


def in_one_process(folder: Path, words: Sequence[Sequence[str]]) -> Mapping[str, dict[str, object]]:
    """What commands of `varve` end with, by their words."""
    done = run(folder, sys.executable, "-c", COMMANDS, json.dumps(words))
    assert done.returncode == 0, done.stdout + done.stderr
    # What the JVM and Spark say while they start is no test's matter.
    assert "WARN" not in done.stderr
    result: dict[str, dict[str, object]] = json.loads(done.stdout.rpartition("RESULT")[2])
    return result


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "shop"
    write_project(folder)
    text = (folder / "assets" / "daily_revenue.test.yaml").read_text(encoding="utf-8")
    start = text.partition("{day: ")[2][:10]
    # Sorted before the file that the project has.
    (folder / "assets" / "a_wrong.test.yaml").write_text(WRONG.format(start=start), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def said(shop: Path) -> Mapping[str, dict[str, object]]:
    return in_one_process(shop, RUNS)


def test_each_test_is_a_line_and_a_failed_one_a_difference(said: Mapping[str, dict[str, object]]) -> None:
    text = str(said["test"]["out"])
    assert said["test"]["code"] == 1
    lines = text.splitlines()
    assert lines[0].startswith("failed shop.daily_revenue: too many pieces (")
    assert lines[1] == "  assets/a_wrong.test.yaml:1: 1 row was made, 1 expected: 1 changed."
    assert "tea       3 → 2    6" in text
    assert sum(line.startswith("passed ") for line in lines) == 2
    assert lines[-1].startswith("1 failed, 2 passed in ")


def test_words_and_datasets_choose(said: Mapping[str, dict[str, object]]) -> None:
    chosen = said["test run -k sum"]
    assert (chosen["code"], str(chosen["out"]).count("passed ")) == (0, 2)
    assert (said["test -k no such words"]["code"], said["test -k no such words"]["out"]) == (5, "No test is chosen.\n")
    unknown = said["test shop.revenue"]
    assert unknown["error"] == (
        "no test is of 'shop.revenue'. Did you mean shop.daily_revenue? There are tests of shop.daily_revenue."
    )


def test_json_has_every_row_that_differs_and_fail_fast_stops(said: Mapping[str, dict[str, object]]) -> None:
    values = json.loads(str(said["test shop.daily_revenue --fail-fast --json"]["out"]))
    assert (values["passed"], values["failed"], len(values["tests"])) == (0, 1, 1)
    (test,) = values["tests"]
    assert (test["file"], test["line"], test["passed"]) == ("assets/a_wrong.test.yaml", 1, False)
    assert test["changed"][0]["columns"] == ["pieces"]


def test_junit_is_what_servers_read(shop: Path, said: Mapping[str, dict[str, object]]) -> None:
    assert said["test -k given away or too many --junit out/junit.xml"]["code"] == 1
    (suite,) = ET.parse(shop / "out" / "junit.xml").getroot()  # noqa: S314 - we have written it
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "3 → 2" in str(failure.text)


def test_no_service_is_started(shop: Path, said: Mapping[str, dict[str, object]]) -> None:
    assert said
    assert not (shop / ".varve").exists()
    assert not (shop / "metastore_db").exists()


def test_a_mistake_ends_with_1_before_anything_runs(shop: Path) -> None:
    bad = shop / "assets" / "bad.test.yaml"
    bad.write_text("- {name: a}\n", encoding="utf-8")
    try:
        done = run(shop, VARVE, "test", "--json")
    finally:
        bad.unlink()
    assert done.returncode == 1
    assert {problem["place"] for problem in json.loads(done.stdout)["problems"]} == {"assets/bad.test.yaml:1"}
    assert "assets/bad.test.yaml:1: the test has no dataset; write dataset: ..." in done.stderr


def test_a_project_without_tests_is_told_how_to_write_one(tmp_path: Path) -> None:
    (tmp_path / "varve.toml").touch()
    (tmp_path / "assets").mkdir()
    done = run(tmp_path, VARVE, "test")
    assert done.returncode == 5
    assert "There is no test: no file of" in done.stdout
    assert "`varve test new` writes one." in done.stdout


def test_pytest_runs_the_same_tests_by_their_names(shop: Path) -> None:
    listed = run(shop, sys.executable, "-m", "pytest", "assets", "--collect-only", "-q")
    assert listed.stdout.splitlines()[:3] == [
        "assets/a_wrong.test.yaml::too many pieces",
        "assets/daily_revenue.test.yaml::the revenue of a product is the sum of its sales",
        "assets/daily_revenue.test.yaml::what is given away fails, and nothing is published",
    ]
    (shop / "tests" / "test_functions.py").write_text(
        textwrap.dedent(
            """\
            from assets.best_sellers import best_sellers


            def test_nothing_was_sold(varve_spark):
                sales = varve_spark.createDataFrame([], "day DATE, store STRING, product STRING, pieces BIGINT")
                assert best_sellers(sales).collect() == []
            """
        )
    )
    done = run(shop, sys.executable, "-m", "pytest", "assets", "tests/test_functions.py", "-p", "no:cacheprovider")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 3 passed" in done.stdout
    assert "tea       3 → 2    6" in done.stdout
    assert "Traceback" not in done.stdout


def test_files_elsewhere_are_left_alone_and_mistakes_are_errors_of_collection(shop: Path) -> None:
    elsewhere, bad = shop / "tests" / "other.test.yaml", shop / "assets" / "bad.test.yaml"
    elsewhere.write_text("anything: else\n", encoding="utf-8")
    bad.write_text("- {name: a}\n", encoding="utf-8")
    try:
        done = run(shop, sys.executable, "-m", "pytest", "assets", "tests", "--collect-only", "-q")
    finally:
        bad.unlink()
        elsewhere.unlink()
    assert "assets/bad.test.yaml:1: the test has no dataset; write dataset: ..." in done.stdout
    assert "other.test.yaml" not in done.stdout


@pytest.mark.spark
def test_the_documented_commands_and_files_are_right(tmp_path: Path) -> None:
    """docs/testing.md: its example is a file of a new project, and its commands run there."""
    folder = tmp_path / "shop"
    write_project(folder)
    (example,) = [block for block in blocks("yaml") if block.runner == HERE]
    start = (folder / "assets" / "sales.sql").read_text(encoding="utf-8").partition("START '")[2][:10]
    text = example.text.replace("2026-10-19", start)
    (folder / "assets" / "daily_revenue.test.yaml").write_text(text, encoding="utf-8")
    (commands,) = [block for block in blocks("console") if block.runner == HERE]
    lines = [shlex.split(command, comments=True) for command in commands.commands]
    ours = [words[1:] for words in lines if words[0] == "varve"]
    assert [result for result in in_one_process(folder, ours).values() if result["code"] != 0] == []
    (others,) = (words for words in lines if words[0] != "varve")
    done = run(folder, *others)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
