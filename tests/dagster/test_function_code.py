"""Functions that compute datasets: which change of their code is another version, and what is refused of them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

import varve
from tests.support.sales import DAY, sales_dataset
from varve.dagster.assets.datasets import RESERVED
from varve.dagster.assets.function_code import code_of_function
from varve.dagster.assets.python_files import broken_modules, python_assets
from varve.dagster.definitions import build_defs
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.model.reads import Reads, shifted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SALES = replace(sales_dataset(StoreKind.LAKE, dimensions=(DAY,)), name="shop.of_function_code")
SALES_OF_OTHERS = replace(SALES, name="shop.of_others")
FACTORY = """
import dataclasses
import enum
import functools

class Size(enum.Enum):
    SMALL = 1
    LARGE = 2

@dataclasses.dataclass
class Rule:
    names: list
    limit: float = 1.0

def timed(function):
    @functools.wraps(function)
    def run(*arguments):
        return function(*arguments)
    return run

LIMIT = 1

def make(value):
    def compute(context):
        return value
    return compute

def decorated(value):
    @timed
    def compute(context):
        return value, LIMIT
    return compute
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is empty; its modules are forgotten after the test."""
    place = tmp_path / f"p{uuid.uuid4().hex[:8]}"
    place.mkdir()
    (place / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield place
    for name in [name for name in sys.modules if name.partition(".")[0] == place.name]:
        del sys.modules[name]


def version(folder: Path, call: str, text: str = FACTORY) -> str:
    """The code version of what an expression makes, in a module of its own."""
    name = f"m{uuid.uuid4().hex[:8]}"
    (folder / f"{name}.py").write_text(f"{text}\nMADE = {call}\n")
    importlib.invalidate_caches()
    return code_of_function(SALES, importlib.import_module(f"{folder.name}.{name}").MADE)[0]


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("{'Paris': 1}", "{'Paris': 2}"),
        ("['a', 'b']", "['b', 'a']"),
        ("('a', ['b'])", "('a', ['c'])"),
        ("{'a'}", "{'b'}"),
        ("Rule(['a'])", "Rule(['a'], limit=2.0)"),
        ("Size.SMALL", "Size.LARGE"),
        ("make(1)", "make(2)"),
        ("functools.partial(make, 1)", "functools.partial(make, 2)"),
        ("lambda row: row + 1", "lambda row: row + 2"),
    ],
)
def test_what_a_factory_encloses_is_part_of_the_code(folder: Path, value: str, other: str) -> None:
    for factory in ("make", "decorated"):
        same = {version(folder, f"{factory}({value})") for _ in range(2)}
        assert len(same) == 1
        assert version(folder, f"{factory}({other})") not in same


def test_under_a_decorator_it_is_the_function_within_that_counts(folder: Path) -> None:
    changed = FACTORY.replace("LIMIT = 1", "LIMIT = 2")
    assert version(folder, "decorated(1)") != version(folder, "decorated(1)", changed)
    assert version(folder, "make(1)") == version(folder, "make(1)", changed), "it names no LIMIT"


def test_a_text_in_the_first_column_does_not_break_a_function_within_a_function(folder: Path) -> None:
    with_text = FACTORY.replace(
        "        return value\n", '        query = """\nSELECT 1\n"""\n        return value, query\n'
    )
    assert with_text != FACTORY
    assert version(folder, "make(1)", with_text) != version(
        folder, "make(1)", with_text.replace("SELECT 1", "SELECT 2")
    )


def test_what_is_enclosed_in_a_circle_is_told_once(folder: Path) -> None:
    # Told at each place where it is met, it would be more than a billion texts.
    names = [f"step_{number}" for number in range(10)]
    calls = ", ".join(f"{name}()" for name in names)
    steps = "".join(f"    def {name}():\n        return {calls}\n" for name in names)
    circle = (
        f"def circle(value):\n{steps}    def compute(context):\n        return step_0(), value\n    return compute\n"
    )
    changed = circle.replace("def step_9():\n        return ", "def step_9():\n        return 9, ")
    first, again, of_other_value, of_other_step = (
        version(folder, f"circle({value})", text)
        for value, text in ((1, circle), (1, circle), (2, circle), (1, changed))
    )
    assert first == again
    assert len({first, of_other_value, of_other_step}) == 3


def test_what_is_met_far_within_first_counts_where_it_is_near(folder: Path) -> None:
    chain = (
        FACTORY + "\n@dataclasses.dataclass\nclass Link:\n    name: str\n    following: object\n\n"
        "def chain(last):\n    links = [Link(last, None)]\n    for number in range(40):\n"
        "        links.insert(0, Link(str(number), links[0]))\n    return make(links)\n"
    )
    (folder / "chains.py").write_text(chain)
    made = importlib.import_module(f"{folder.name}.chains").chain
    first, again, other = (code_of_function(SALES, made(last))[0] for last in ("a", "a", "b"))
    assert first == again != other


def test_every_process_has_the_same_version() -> None:
    program = (
        "from tests.dagster.test_function_code import SALES, enclosing\n"
        "from varve.dagster.assets.function_code import code_of_function\n"
        "print(code_of_function(SALES, enclosing(frozenset({'bread', 'tea', 'milk'}), {'a': {'x', 'y', 'z'}}))[0])\n"
    )
    versions = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        versions.add(done.stdout)
    assert len(versions) == 1


def enclosing(*values: Any) -> Any:
    """A function that has enclosed these values."""

    def compute(context: Any) -> Any:
        return values

    return compute


def test_an_argument_that_nothing_fills_is_refused_by_name() -> None:
    for compute in (lambda _, orders: orders, lambda departures: departures):
        with pytest.raises(VarveError, match=r"takes (orders|departures), which `reads` does not name"):
            varve.asset(SALES, code_version="1")(compute)
    made = varve.asset(SALES, code_version="1", reads={"sales": SALES_OF_OTHERS})(lambda _, sales: sales)
    assert made(None, 1) == 1


def test_an_entry_that_the_function_does_not_take_is_refused_by_name() -> None:
    with pytest.raises(VarveError, match=r"`reads` names others, which its function of_sales does not take"):

        @varve.asset(SALES, reads={"others": SALES_OF_OTHERS})
        def of_sales(context: Any) -> None: ...

    made = varve.asset(SALES, reads={"others": SALES_OF_OTHERS})(lambda **inputs: inputs)
    assert made(others=1) == {"others": 1}


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_an_input_may_have_no_name_that_dagster_keeps(name: str) -> None:
    with pytest.raises(VarveError, match=rf"of_sales has an input '{name}', a name that Dagster keeps for itself"):

        @varve.asset(SALES, reads={name: SALES_OF_OTHERS})
        def of_sales(**inputs: Any) -> None: ...

    with pytest.raises(dg.DagsterInvalidDefinitionError):

        @dg.asset(ins={name: dg.AssetIn("others")})
        def of_dagster(**inputs: Any) -> None: ...


def test_one_dataset_is_read_by_one_entry() -> None:
    reads = {"now": SALES_OF_OTHERS, "before": Reads(SALES_OF_OTHERS, {"day": shifted(-7)})}
    with pytest.raises(VarveError, match=f"reads {SALES_OF_OTHERS} twice, as now and as before"):
        varve.asset(SALES, reads=reads)(lambda now, before: (now, before))


def test_more_about_the_asset_is_said_and_what_follows_from_the_dataset_is_not() -> None:
    about = {"required_resource_keys": {"api"}, "owners": ["ann@example.com"], "tags": {"tier": "gold"}}
    made = varve.asset(SALES, code_version="1", about=about)(lambda _: None)
    assert {"api", "builds", "spark"} <= made.asset.required_resource_keys  # type: ignore[union-attr]
    (spec,) = made.asset.specs  # type: ignore[union-attr]
    assert (list(spec.owners), spec.tags["tier"]) == (["ann@example.com"], "gold")
    with pytest.raises(VarveError, match="about has io_manager_key, which follows from the dataset"):
        varve.asset(SALES, code_version="1", about={"io_manager_key": "mine"})(lambda _: None)


DECLARED = """
import varve
from tests.dagster.test_function_code import SALES
from dataclasses import replace

def made(name):
    @varve.asset(replace(SALES, name=f"shop.{name}"), code_version="1")
    def compute(context): ...
    return compute
"""


def test_assets_in_a_list_or_by_name_are_found(folder: Path) -> None:
    (folder / "several.py").write_text(
        f"{DECLARED}\nLISTED = [made('a'), made('b')]\nNAMED = {{'c': made('c')}}\nONE = made('d')\nOTHER = [1, 2]\n"
    )
    assert sorted(asset.dataset.name for asset in python_assets(folder)) == ["shop.a", "shop.b", "shop.c", "shop.d"]


def test_a_wrong_declaration_costs_its_own_file_and_says_which(folder: Path) -> None:
    (folder / "good.py").write_text(f"{DECLARED}\nONE = made('good')\n")
    (folder / "bad.py").write_text("import varve\nWAIT = varve.Wait(at_least=2, missing=1)\n")
    assert [asset.dataset.name for asset in python_assets(folder)] == ["shop.good"]
    (broken,) = broken_modules(folder)
    assert (broken.file, broken.state) == (f"{folder.name}/bad.py", "broken")
    assert f"{folder.name}/bad.py:2: Wait(" in broken.headline
    assert "say at_least or missing, not both" in broken.headline


def test_two_broken_files_of_one_name_stop_nothing_else(folder: Path) -> None:
    for region in ("eu", "us"):
        (folder / region).mkdir()
        (folder / region / "__init__.py").write_text("")
        (folder / region / "daily.py").write_text("import nosuch\n")
    (folder / "good.py").write_text(f"{DECLARED}\nONE = made('good')\n")
    broken = broken_modules(folder)
    assert len(broken) == 2
    definitions = build_defs([*python_assets(folder), *broken])
    keys = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert {f"varve/broken/{folder.name}/{region}/daily_py" for region in ("eu", "us")} | {"shop/good"} <= keys
