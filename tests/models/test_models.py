"""The capture, the publish and the lease as state machines, explored whole; the code has the same steps as they."""

from __future__ import annotations

import ast
import inspect

import pytest

from tests.cdc import test_oracle
from tests.models import capture_model, lease_model, publish_model
from tests.models.capture_model import CaptureModel
from tests.models.explorer import Explored, Model, explore
from tests.models.lease_model import LeaseModel
from tests.models.publish_model import PublishModel
from varve.catalog.catalog import Catalog
from varve.catalog.living.leases import Leases
from varve.cdc import apply
from varve.cdc.apply import Apply
from varve.cdc.capture import capture
from varve.stores.store import Store

pytestmark = pytest.mark.needs_seconds


def told(explored: Explored) -> str:
    """The violated invariant with its history, for the message of a test."""
    return "\n".join((explored.violated, *explored.history))


@pytest.mark.parametrize(
    ("model", "least"),
    [(CaptureModel(transactions=2, deaths=2), 20_000), (PublishModel(batches=2), 15_000), (LeaseModel(), 2_000)],
    ids=["capture", "publish", "lease"],
)
def test_what_is_promised_holds_in_every_state(model: Model, least: int) -> None:
    explored = explore(model)
    assert not explored.violated, told(explored)
    assert explored.states > least


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(
    ("model", "least"),
    [(CaptureModel(transactions=3, deaths=3), 500_000), (PublishModel(batches=3, deaths=2), 200_000),
     (LeaseModel(troubles=12), 5_000)],
    ids=["capture", "publish", "lease"],
)  # fmt: skip
def test_what_is_promised_holds_in_every_state_of_larger_machines(model: Model, least: int) -> None:
    explored = explore(model)
    assert not explored.violated, told(explored)
    assert explored.states > least


@pytest.mark.parametrize("mutation", capture_model.MUTATIONS)
def test_an_error_in_the_capture_is_found(mutation: str) -> None:
    # Where a look may have one transaction only, it is cut off before the end of the log.
    most = 1 if mutation == "confirms what was not read" else 2
    explored = explore(CaptureModel(transactions=2, deaths=2, most=most, mutation=mutation))
    assert explored.violated == capture_model.MUTATIONS[mutation]
    assert explored.history


@pytest.mark.parametrize("mutation", publish_model.MUTATIONS)
def test_an_error_in_the_publish_is_found(mutation: str) -> None:
    explored = explore(PublishModel(deaths=1, mutation=mutation))
    assert explored.violated == publish_model.MUTATIONS[mutation]


@pytest.mark.parametrize("mutation", lease_model.MUTATIONS)
def test_an_error_in_the_lease_is_found(mutation: str) -> None:
    assert explore(LeaseModel(mutation=mutation)).violated == lease_model.MUTATIONS[mutation]


def named_steps(module: object) -> list[str]:
    """The names with which a module calls its `step`, where tests kill it."""
    steps = [
        (node.lineno, node.args[0].value)
        for node in ast.walk(ast.parse(inspect.getsource(module)))  # type: ignore[arg-type]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]
    return [name for _, name in sorted(steps)]


def test_the_steps_of_the_capture_are_those_at_which_the_code_is_killed() -> None:
    assert tuple(named_steps(capture)) == capture_model.CAPTURE == test_oracle.IN_CAPTURE
    assert set(named_steps(apply)) == set(capture_model.APPLY)
    assert capture_model.APPLY == test_oracle.IN_APPLY


def test_the_steps_of_a_publish_are_the_functions_that_the_code_calls_in_this_order() -> None:
    tree = ast.parse(inspect.getsource(apply))
    (function,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "_publish"]
    # `_commit` calls what moves the catalog's rows, Catalog.publish; `_staged` calls Store.stage.
    names = {"_commit": "publish", "_staged": "stage"}
    calls = sorted(
        (node.lineno, names.get(node.func.attr, node.func.attr))
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    order = [name for _, name in calls if name in publish_model.BUILD]
    assert tuple(order) == publish_model.BUILD
    assert all(hasattr(Catalog, name) or hasattr(Store, name) for name in (*publish_model.BUILD, "sweep"))
    assert Apply._commit.__doc__ is not None


def test_the_steps_of_a_lease_are_the_methods_that_change_it_or_decide_by_it() -> None:
    methods = {name for name, _ in inspect.getmembers(Leases, inspect.isfunction) if not name.startswith("_")}
    asking = {"of", "sessions", "may_note"}
    assert methods - asking == set(lease_model.LIFE)
