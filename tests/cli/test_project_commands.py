"""The commands that a project brings itself: found however it is named, and never in the way of Varve's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.prepared import run_prepared

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.needs_seconds

VARVE = str(Path(sys.executable).parent / "varve")
GREETING = "import typer\napp = typer.Typer()\n\n\n@app.command()\ndef greet() -> None:\n    print('hello from here')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "varve.toml").write_text('commands = ["greetings"]\n')
    (tmp_path / "assets").mkdir()
    (tmp_path / "greetings.py").write_text(GREETING)
    return tmp_path


def varve(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return run_prepared(VARVE, *words, cwd=cwd, env=environment)


@pytest.mark.parametrize("named", [["--project", "{}"], ["--project={}"], ["--deployment", "prod", "--project", "{}"]])
def test_a_command_of_a_project_is_one_of_varve_however_the_project_is_named(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, named: list[str]
) -> None:
    with (folder / "varve.toml").open("a") as file:
        file.write("[deployments.prod]\n")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = varve(*[word.format(folder) for word in named], "greet", cwd=elsewhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello from here\n", "")
    assert varve("greet", cwd=elsewhere).returncode != 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def greet(:\n", "SyntaxError: "),
        ("greet = 1\n", "AttributeError: "),
        (None, "which Python does not find in"),
    ],
    ids=["an import", "a syntax error", "no app", "no module"],
)
def test_a_broken_module_of_commands_is_told_and_varves_own_go_on(folder: Path, text: str | None, reason: str) -> None:
    if text is None:
        (folder / "greetings.py").unlink()
    else:
        (folder / "greetings.py").write_text(text)
    done = varve("--help", cwd=folder)
    assert done.returncode == 0
    assert "Start the embedded PostgreSQL" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{folder}/varve.toml names greetings for commands of its own, and it cannot be used: ")
    assert reason in line


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        # As PostgreSQL ends a session that it has lost at a commit: nobody knows then whether it was made.
        ("psycopg.errors.AdminShutdown('terminating connection')", 1, "PostgreSQL broke off"),
        ("psycopg.errors.ReadOnlySqlTransaction('cannot execute UPDATE')", 1, "takes no writes"),
        (
            "psycopg.errors.InsufficientPrivilege('permission denied for schema varve')",
            1,
            "`varve warehouse roles` makes",
        ),
        ("LookupError('a cell')", 2, "This is a defect of Varve"),
    ],
)
def test_what_ends_in_a_way_that_nobody_has_foreseen_says_only_what_is_known(
    folder: Path, raised: str, code: int, said: str
) -> None:
    (folder / "greetings.py").write_text(f"import psycopg\n{GREETING.replace('print(', f'raise {raised}  # (')}")
    done = varve("greet", cwd=folder)
    assert done.returncode == code
    assert said in done.stderr
    assert ("Traceback" in done.stderr) is (code == 2)
    assert "A publish is whole or has not happened" in done.stderr
    assert "othing was published" not in done.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [(["down", "--project", "x"], "--project"), (["cdc", "status", "--deployment=prod"], "--deployment")],
)
def test_an_option_that_belongs_before_the_command_says_so(folder: Path, words: list[str], option: str) -> None:
    refused = varve(*words, cwd=folder)
    assert refused.returncode == 2
    message = " ".join(refused.stderr.replace("\u2502", " ").split())
    assert f"No such option: {option}. Write it before the command: varve {option} ... {words[0]} ..." in message
