"""What `varve promote` does, and the other commands that promote in the end: correct, evolve, revert, apply.

Not here: environments before they are promoted (work.py), and the promotion itself (varve/stores/environments).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.promotions import Promotions
from varve.catalog.environments.environments import Environments
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.environments.work import announcing, connected, opened
from varve.cli.selection import who
from varve.model.errors import BadInput, VarveError
from varve.planning.environment_runs import Wanted
from varve.services.spark import open_session
from varve.stores.catching_up import catch_up
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import LeftBehind, NotClosed, Promotion
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Collection

    import psycopg
    from rich.console import Console

    from varve.catalog.code.promotions import PromotionPlan
    from varve.dagster.environments.open_environment import EnvironmentWork, OpenEnvironment

# How often what production has moved meanwhile is computed again before a promotion gives up.
_ROUNDS = 3


def promote(
    console: Console | None, name: str, behind: LeftBehind, *, run_first: bool, dry_run: bool,
    incomplete: bool = False, earlier_code: bool = False,
) -> Promotion:  # fmt: skip
    """Promote an environment, or with `dry_run` only look at what that would do.

    That gets a number, with which `varve apply` does exactly that. Raises NotClosed with what would be inconsistent.
    """
    with opened(name) as environment, connected("promote") as connection:
        if not dry_run:
            return promote_opened(
                console, environment, connection, behind, run_first=run_first, incomplete=incomplete,
                earlier_code=earlier_code,
            )  # fmt: skip
        promoter = _promoter(environment, connection, incomplete=incomplete, earlier_code=earlier_code)
        promotion = promoter.look(name, behind)
        if promotion.is_refused(behind) or not (promotion.batches or promotion.codes):
            return promotion
        return replace(promotion, number=Promotions(connection).keep(promotion.plan(behind), by=who()))


def promote_opened(
    console: Console | None, opened: OpenEnvironment, connection: psycopg.Connection, behind: LeftBehind, *,
    run_first: bool = True, only: Collection[str] | None = None, reason: str = "", incomplete: bool = False,
    earlier_code: bool = False, done: EnvironmentWork | None = None, effects: bool = False,
) -> Promotion:  # fmt: skip
    """Promote an environment; what production has moved meanwhile is computed before that with `run_first`.

    What that computes is added to `done`; foreign programs and functions run with `effects` only. With `earlier_code`
    also code that was deployed before what is deployed now. Raises NotClosed with what would be inconsistent.
    """
    name = opened.name
    promoter = _promoter(opened, connection, only, reason, incomplete=incomplete, earlier_code=earlier_code)
    show_what_lags(connection)
    # What production has moved is computed, whatever becomes of what would be left behind.
    looking = LeftBehind.RUN if behind is LeftBehind.LEAVE_OUT else behind
    for _ in range(_ROUNDS if run_first else 0):
        promotion = promoter.look(name, looking)
        if promotion.closure.moved:
            _run_what_moved(console, opened, connection, promotion, done, effects=effects)
            continue
        try:
            return _with_lineage_told(connection, promoter.promote(name, behind, by=who()))
        except NotClosed as error:
            # Production has moved between the look and the promotion.
            if not error.promotion.closure.moved:
                raise
    return _with_lineage_told(connection, promoter.promote(name, behind, by=who()))


def show_what_lags(connection: psycopg.Connection) -> dict[str, int]:
    """Let readers see what is current: a command that was killed right after its transaction has not shown all of it.

    By dataset how many batches they see more.
    """
    settings, graph, catalog = chosen_settings(), chosen_graph(), Catalog(connection)
    session = cache(lambda: open_session(settings))
    lagging = {lag.dataset for lag in catalog.all_lagging(older_than=0)}
    names = lagging | {name for name, _ in Generations(connection).all_left()}
    return catch_up(
        catalog, lambda kind: open_store(kind, settings, catalog, session), graph.datasets,
        sorted(names & set(graph.own)),
    )  # fmt: skip


def plan_of(number: int) -> PromotionPlan | None:
    """Return the plan of that number where it is a promotion of an environment, as `varve promote --dry-run` keeps it.

    Raises VarveError where it was made already.
    """
    with connected("apply") as connection:
        plan = Promotions(connection).of(number)
        if plan is not None and plan.applied_at is not None:
            show_what_lags(connection)
    if plan is not None and plan.applied_at is not None:
        raise VarveError(
            f"plan {number} was applied at {plan.applied_at:%Y-%m-%d %H:%M} UTC by {plan.applied_by}. Nothing was "
            f"changed. To take it back: varve revert {number}"
        )
    return plan


def apply_plan(plan: PromotionPlan) -> Promotion:
    """Promote exactly what a plan says.

    Raises VarveError where the environment has moved since, NotClosed where production has.
    """
    with opened(plan.environment) as environment, connected("apply") as connection:
        # Also where its code was replaced only after the plan was made, it says so, or is refused.
        promoter = _promoter(environment, connection, incomplete=plan.incomplete, earlier_code=plan.earlier_code)
        return _with_lineage_told(
            connection, promoter.promote(plan.environment, LeftBehind(plan.behind), by=who(), plan=plan)
        )


def behind_of(*, then_run: bool, only_consistent: bool) -> LeftBehind:
    """Return what the options say. Raises BadInput where they contradict each other."""
    if then_run and only_consistent:
        raise BadInput("--then-run and --only-consistent exclude each other. Nothing was promoted.")
    return LeftBehind.RUN if then_run else LeftBehind.LEAVE_OUT if only_consistent else LeftBehind.REFUSE


def promotion_values(promotion: Promotion) -> dict[str, Any]:
    """Return a promotion as plain values for `--json`."""
    return {
        "environment": promotion.environment,
        "number": promotion.number,
        "run": promotion.run_id or None,
        "codes": dict(promotion.codes),
        "partitions": {
            name: {path: str(batch_id) for path, batch_id in sorted(batches.items())}
            for name, batches in promotion.batches.items()
        },
        "moved": promotion.closure.moved,
        "behind": promotion.closure.behind,
        "lacking": promotion.closure.lacking,
        "left_out": promotion.left_out,
        "removed": list(promotion.removed),
        "replaced": list(promotion.replaced),
    }


def _with_lineage_told(connection: psycopg.Connection, promotion: Promotion) -> Promotion:
    """The promotion, after those who follow the lineage were told of it."""
    from varve.observe.lineage.moves import tell_moves

    if promotion.run_id:
        tell_moves(chosen_graph(), connection, chosen_settings().project, promotion.run_id)
    return promotion


def _run_what_moved(
    console: Console | None, opened: OpenEnvironment, connection: psycopg.Connection, promotion: Promotion,
    done: EnvironmentWork | None, *, effects: bool,
) -> None:  # fmt: skip
    """Compute in the environment what production has moved since."""
    # The base moves and not the code: nothing that was deployed meanwhile is undone by that.
    Environments(connection).rebase(opened.name, code_too=False)
    overlay: dict[str, set[str]] = {}
    for row in Environments(connection).overlay(opened.name):
        overlay.setdefault(row.dataset, set()).add(row.partition)
    # A new generation may lack partitions that production has had meanwhile, and has rows of files from before.
    for dataset in promotion.generations:
        moved = promotion.closure.moved.get(dataset, {})
        overlay.setdefault(dataset, set()).update(moved)
        if opened.graph.datasets[dataset].arrives:
            Environments(connection).forget_overlay(opened.name, {dataset: list(moved)})
    opened.run(Wanted(paths=overlay), effects=effects, before=announcing(console), done=done)


def _promoter(
    opened: OpenEnvironment, connection: psycopg.Connection, only: Collection[str] | None = None, reason: str = "",
    *, incomplete: bool = False, earlier_code: bool = False,
) -> Promoter:  # fmt: skip
    from varve.dagster.automation.planner_facts import limits_of

    settings, catalog = chosen_settings(), Catalog(connection)
    session = cache(lambda: open_session(settings))
    return Promoter(
        catalog, opened.graph, lambda dataset: open_store(dataset.store, settings, catalog, session),
        opened.members, limits_of(settings), pendulum.now("UTC"), None if only is None else frozenset(only),
        replace(opened.corrections, connection=connection), reason, incomplete, earlier_code,
    )  # fmt: skip
