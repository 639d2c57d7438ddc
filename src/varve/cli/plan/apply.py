"""`varve apply`: deploy the code of a plan, and say what becomes of the partitions that other code has made.

Not here: what the plan says (changes.py), and doing it (varve/catalog/code/plans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.code.decision import Decision
from varve.catalog.code.plans import Plans
from varve.cli.context import chosen_graph
from varve.cli.plan.open_plan import opened_plan
from varve.cli.selection import who
from varve.model.errors import BadInput, VarveError, counted
from varve.model.policy import OnCodeChange, instant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.planning.changes.code_changes import CodeChange


def decision_of(*, rebuild: bool, hold: bool, forward_from: str | None) -> Decision | None:
    """Return the decision of the options; None where none is given. Raises VarveError for more than one."""
    if rebuild + hold + (forward_from is not None) > 1:
        raise VarveError("--rebuild, --hold and --forward-from exclude each other. Nothing was changed.")
    if forward_from is not None:
        instant_of(forward_from)
        return Decision(OnCodeChange.FORWARD, forward_from)
    if rebuild or hold:
        return Decision(OnCodeChange.REBUILD if rebuild else OnCodeChange.HOLD)
    return None


def refuse_options(number: int, environment: str, datasets: Sequence[str] | None, decision: object) -> None:
    """Raise BadInput where more was said than the number of a plan that is a promotion."""
    if datasets or decision:
        raise BadInput(
            f"plan {number} promotes environment {environment} as a whole: it has no datasets to choose, and nothing "
            f"to decide. Nothing was changed. varve apply {number}"
        )


def apply(number: int, only: Sequence[str], decision: Decision | None) -> list[dict[str, Any]]:
    """Apply a plan, and return what was decided of each dataset, as plain values.

    Raises VarveError, and changes nothing, where the plan is not what would be done now.
    """
    with opened_plan() as open_plan:
        plans = Plans(open_plan.connection, chosen_graph(), open_plan.members)
        done = plans.apply(number, decision, only, pendulum.now("UTC"), by=who())
        return [_values(change, made) for change, made in done]


def show(console: Console, applied: Sequence[dict[str, Any]]) -> None:
    """Print what was decided, and what happens next."""
    for code in applied:
        count = counted(code["partitions"], "partition")
        what = {
            OnCodeChange.REBUILD: f"{count} to be computed again, by the sensors or a backfill",
            OnCodeChange.HOLD: f"{count} made by other code are on hold; until then nothing of it is computed",
            OnCodeChange.FORWARD: f"windows from {code['forward_from']} on are computed with it; earlier ones stay",
        }[OnCodeChange(code["decision"])]
        console.print(f"{code['dataset']}: deployed {code['version']}; {what}.", highlight=False, soft_wrap=True)


def _values(change: CodeChange, decision: Decision) -> dict[str, Any]:
    return {
        "dataset": change.dataset,
        "version": change.version,
        "replaces": change.deployed,
        "decision": str(decision.kind),
        "forward_from": decision.forward_from or None,
        "partitions": len(change.partitions),
    }
