"""What the documents say is there: links, files, modules, settings, commands and options. Without a server."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.documents.pages import PAGES, anchors_of, blocks, code_in_lines, prose_of, text_of
from tests.support.project import PROJECT, ROOT
from varve.project import PROJECT_VARIABLE, Project
from varve.services.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.documents.pages import Block

FOLDERS = ("src", "tests", "docs", "pipeline_defs", "resources", "assets", "benchmarks", ".ci", ".github")
# What a reader is told to write, and what a load of the datasets leaves behind.
TO_BE_WRITTEN = {"assets/busiest.sql", "assets/busiest.py", "assets/__pycache__"}
# A page about the files of a project that `varve init` has written.
OF_A_NEW_PROJECT = "docs/start.md"
COMMANDS_AS_JSON = """
import json, sys
import typer
sys.argv[1:] = []
from varve.cli import app as cli
from varve.cli.project_commands import add_commands_of_project
add_commands_of_project(cli.app, [])
def tree(command, context):
    children = getattr(command, "commands", {})
    # The options of a command that need not be named are those of its group too.
    unnamed = children.get(getattr(command, "default_command", None))
    parameters = command.get_params(context) + (unnamed.get_params(context) if unnamed else [])
    options = [name for each in parameters for name in each.opts + each.secondary_opts]
    free = command.context_settings.get("ignore_unknown_options", False)
    return {"options": options, "free": free, "commands": {name: tree(one, context) for name, one in children.items()}}
command = typer.main.get_command(cli.app)
print(json.dumps(tree(command, typer.Context(command))))
"""


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: str) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and anchor not in anchors_of(str(file.resolve().relative_to(ROOT))):
            wrong.append(f"{target}: no such heading")
    assert not wrong


@pytest.mark.parametrize("page", [page for page in PAGES if page != OF_A_NEW_PROJECT])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = {code for code in code_in_lines(page) if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./*-]*", code)}
    assert not [name for name in sorted(named - TO_BE_WRITTEN) if not [*ROOT.glob(name.rstrip("/"))]]


def test_every_decision_and_module_that_a_comment_cites_is_there() -> None:
    wrong = []
    for file in [file for top in ("src", "pipeline_defs", "resources", "assets") for file in (ROOT / top).rglob("*")]:
        if file.suffix not in {".py", ".sql"}:
            continue
        text = file.read_text(encoding="utf-8")
        cited = [f"docs/decisions/{number}-*.md" for number in re.findall(r"docs/decisions/(\d{4})", text)]
        cited += re.findall(r"\bdocs/\w+\.md", text)
        cited += [f"src/{path}" for path in re.findall(r"\bvarve/[\w/]+\.(?:py|sql)\b", text)]
        wrong += [f"{file.relative_to(ROOT)}: {path}" for path in cited if not [*ROOT.glob(path)]]
    assert not wrong


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_python_block_parses_and_imports_what_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in {"varve", "assets"}:
            module = importlib.import_module(str(node.module))
            assert not [name.name for name in node.names if not hasattr(module, name.name)], node.module


def test_the_table_of_settings_has_all_of_them_with_their_defaults() -> None:
    cells = re.findall(r"^\| ((?:`VARVE_\w+`(?:, )?)+) \| ([^|]*) \|", text_of("docs/reference.md"), re.MULTILINE)
    shown = {
        name: default.strip("` ")
        for names, defaults in cells
        for name, default in zip(re.findall(r"`VARVE_(\w+)`", names), defaults.split(", "), strict=True)
    }
    assert shown.pop("DEPLOYMENT")
    assert set(shown) == {name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float | str):
            expected = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert shown[name.upper()] == expected, name


def test_the_project_of_the_reference_is_read_as_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = [block for block in blocks("toml") if block.page == "docs/reference.md"]
    (tmp_path / "pyproject.toml").write_text(example.text, encoding="utf-8")
    for name in ("LANDING_ROOT", "LAKE_ROOT", "SPARK_REMOTE", "ATTEMPTS", "PARTITIONS_PER_RUN", "DEPLOYMENT"):
        monkeypatch.delenv(f"VARVE_{name}", raising=False)
    monkeypatch.delenv(PROJECT_VARIABLE, raising=False)

    local, prod = Project.find(tmp_path), Project.find(tmp_path, deployment="prod")
    assert local.deployment == "local"
    assert local.assets == tmp_path / "assets"
    assert local.settings.landing == str(tmp_path / "samples")
    assert (local.settings.partitions_per_run, local.settings.attempts) == (500, 3)
    assert (prod.settings.partitions_per_run, prod.settings.attempts) == (500, 5)
    assert prod.settings.lake == "s3a://warehouse/lake"
    monkeypatch.setenv("VARVE_DEPLOYMENT", "prod")
    monkeypatch.setenv("VARVE_LAKE_ROOT", "/elsewhere")
    assert Project.find(tmp_path).settings.lake == "/elsewhere"
    assert Project.find(tmp_path).settings.attempts == 5


def test_the_keys_of_the_reference_are_those_of_the_projects_file() -> None:
    table = text_of("docs/reference.md").partition("| key | default |")[2].partition("\n\n")[0]
    keys = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    for key in keys:
        assert f'"{key}"' in (ROOT / "src/varve/project.py").read_text(encoding="utf-8"), key
    (example,) = [block for block in blocks("toml") if block.page == "docs/reference.md"]
    assert set(tomllib.loads(example.text)["tool"]["varve"]) <= keys


@pytest.mark.needs_seconds
def test_every_varve_command_of_every_page_is_one_with_its_options() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS_AS_JSON], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    root = json.loads(done.stdout)
    said = [
        (page, command)
        for page in PAGES
        for code in [*commands_of(page), *code_in_lines(page)]
        for command in re.findall(r"(?:^|&& )varve ([^&]+)", code)
    ]
    wrong = [f"{page}: varve {command}: {told}" for page, command in said if (told := problem_of(root, command))]
    assert not wrong


def commands_of(page: str) -> list[str]:
    """All commands of a page's blocks."""
    return [command for block in blocks("console") if block.page == page for command in block.commands]


def problem_of(root: dict[str, dict], said: str) -> str | None:  # type: ignore[type-arg]
    """What is wrong with a command as a page writes it, if anything is."""
    node, known, words = root, [*root["options"], "--help"], said.split()
    while words and words[0].startswith("--") and words[0] in known:
        words = words[2:]
    while words and (word := words[0].strip("`[],.;:")) in node["commands"]:
        node, words = node["commands"][word], words[1:]
        known += node["options"]
    if node is root and words and words != ["..."]:
        return f"there is no command {words[0]}"
    if node["commands"] and words and re.fullmatch(r"[a-z]+", words[0]):
        return f"there is no command {words[0]} in it"
    strange = [option for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(words)) if option not in known]
    return f"there is no option {', '.join(strange)}" if strange and not node["free"] else None


def test_every_block_of_commands_names_the_test_that_runs_it() -> None:
    shown = blocks("console", "sh", "bash", "shell")
    assert not [str(block) for block in shown if block.runner is None], "write <!-- FILE runs this block --> above"
    assert not [f"{block}: {block.runner}" for block in shown if not (ROOT / str(block.runner)).is_file()]


def test_every_make_target_of_every_page_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        (page, target)
        for page in PAGES
        for code in [*code_in_lines(page), *commands_of(page)]
        for target in re.findall(r"(?:^|&& )make ([a-z-]+)$", code)
    }
    assert not sorted((page, target) for page, target in named if target not in targets)


def test_make_demo_runs_the_demo_that_the_tests_run() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("/varve demo --days 28")


def test_the_project_of_this_repository_is_the_one_that_its_documents_show() -> None:
    assert PROJECT.definitions == "pipeline_defs.definitions"
    assert PROJECT.commands == ("pipeline_defs.demo.commands",)
    assert f"-m {PROJECT.definitions}" in text_of("README.md")


@pytest.mark.needs_seconds
def test_the_page_of_the_api_has_every_name_of_varve_that_others_in_dagster_cannot_have() -> None:
    from varve.dagster.assets.captured import automation
    from varve.dagster.definitions import definitions
    from varve.dagster.discovery import load_project

    defs = definitions(PROJECT)
    repository = defs.get_repository_def()
    given = set(defs.resources or {})
    given |= {each.name for each in (*repository.sensor_defs, *repository.schedule_defs, *repository.get_all_jobs())}
    (planes,) = load_project(PROJECT).captured
    (verification,) = automation(replace(planes, verify="0 3 * * *"), PROJECT).schedules
    given |= {verification.name, verification.job_name}
    assert {"alerts", "capture_fleet_planes_sensor", "verify_fleet_planes_job"} <= given
    # Names that begin with __ Dagster makes for itself.
    assert not {name for name in given if not name.startswith("__")} - set(code_in_lines("docs/api.md"))
