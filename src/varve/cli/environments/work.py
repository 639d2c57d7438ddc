"""What the commands over environments do.

Not here: their words and options (commands.py), and what they print (report.py).
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.promotions import Promotions
from varve.catalog.environments.environments import Environment, Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.cli.files.roles import refuse_unknown_roles
from varve.cli.selection import span, who
from varve.model.errors import BadInput, VarveError, some
from varve.planning.environment_runs import Wanted
from varve.services.folders import environment_home
from varve.services.postgres import connect
from varve.services.spark import open_session
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import LeftBehind, NotClosed, Promotion
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    import psycopg
    from rich.console import Console

    from varve.catalog.code.promotions import PromotionPlan
    from varve.dagster.environments import OpenEnvironment
    from varve.planning.run_requests import Run

# How often what production has moved meanwhile is computed again before a promotion gives up.
_ROUNDS = 3
_LISTED = 12


@contextmanager
def connected(command: str) -> Iterator[psycopg.Connection]:
    """A connection to the catalog of the chosen project, which is made where it is missing."""
    with connect(chosen_settings(), application=f"varve {command}") as connection:
        Catalog(connection).ensure_schema()
        yield connection


def create(name: str, *, live: bool, ttl: str) -> Environment:
    """Make an environment. Raises BadInput for a name that cannot be one or is taken, VarveError for another span."""
    lasts = span(ttl)
    with connected("env create") as connection:
        return Environments(connection).create(name, by=who(), live=live, ttl=lasts or None)


def listed() -> list[Environment]:
    """Return all environments, by name."""
    with connected("env list") as connection:
        return Environments(connection).all()


def drop(name: str) -> Environment:
    """Forget an environment, with what shows it by SQL; return what it was.

    Raises VarveError where there is none, or where somebody's own object depends on one of its views.
    """
    with connected("env drop") as connection:
        environments = Environments(connection)
        environments.get(name)
        hide_views(connection, name)
        dropped = environments.drop(name)
    shutil.rmtree(environment_home(chosen_settings(), name), ignore_errors=True)
    return dropped


def show_views(name: str, readers: Sequence[str] = ()) -> list[str]:
    """Show an environment by SQL, to these roles too; return the names under which its datasets are.

    Raises VarveError where the server has no such role, and BadInput where a dataset of the project lies in a database
    of such a name.
    """
    settings = chosen_settings()
    with opened(name) as environment:
        databases = {dataset.db: f"{dataset.db}__{name}" for dataset in environment.graph.datasets.values()}
        if taken := sorted(set(databases.values()) & set(databases)):
            raise BadInput(
                f"the project has datasets in {', '.join(taken)}, which is what views of {name} would be in. "
                "Nothing was made. Choose another name for the environment."
            )
        refuse_unknown_roles(environment.connection, readers)
        catalog = EnvironmentCatalog(environment.connection, name)
        session = cache(lambda: open_session(settings))
        environments, names = Environments(environment.connection), []
        for dataset in environment.graph.in_order():
            store = open_store(dataset.store, settings, catalog, session)
            environments.note_view(name, databases[dataset.db], dataset.table, str(dataset.store))
            if store.show_as(dataset, list(catalog.current(dataset.name).values()), databases[dataset.db], readers):
                names.append(f"{databases[dataset.db]}.{dataset.table}")
        environments.use(name)
    return names


def hide_views(connection: psycopg.Connection, name: str) -> None:
    """Remove the tables and views that show an environment by SQL; their data is not theirs."""
    settings, environments = chosen_settings(), Environments(connection)
    session = cache(lambda: open_session(settings))
    by_database: dict[tuple[str, str], list[str]] = {}
    for database, table, store in environments.views(name):
        by_database.setdefault((store, database), []).append(table)
    for (store, database), tables in by_database.items():
        open_store(store, settings, Catalog(connection), session).hide(database, tables)
    environments.forget_views(name)


def rebase(name: str, *, merged: bool) -> Environment:
    """Move an environment onto what is current.

    Raises VarveError where code that it has changed was replaced in production since, and nobody says that its own code
    contains that.
    """
    with connected("env rebase") as connection:
        environments = Environments(connection)
        deployed = Deployments(connection).current()
        moved = [
            dataset for dataset, code in environments.code(name).items()
            if dataset in deployed and deployed[dataset].code_version not in {code.base, code.version}
        ]  # fmt: skip
        if moved and not merged:
            raise VarveError(
                f"other code of {some(moved)} was deployed in production since environment {name} was made. Nothing "
                "was moved. Merge it into the code here, and say so: "
                f"varve env rebase {name} --merged, then varve env run {name}."
            )
        return environments.rebase(name, code_too=True)


def compared(name: str) -> dict[str, Any]:
    """Return, by dataset, how the partitions of an environment's overlay compare with production's."""
    with connected("env show") as connection:
        environments = Environments(connection)
        environment = environments.get(name)
        datasets: dict[str, dict[str, Any]] = {}
        for row in environments.overlay(name):
            counts = datasets.setdefault(
                row.dataset, {"partitions": 0, "equal": 0, "differ": 0, "new": 0, "rows": 0, "differing": []}
            )
            counts["partitions"] += 1
            counts["rows"] += row.rows or 0
            if row.current is None:
                counts["new"] += 1
            elif row.batch_id == row.current or row.same_content:
                counts["equal"] += 1
            else:
                counts["differ"] += 1
                counts["differing"].append(row.partition)
        return {**values_of(environment), "overlay": datasets}


def run(
    console: Console | None, name: str, words: Sequence[str], *, first: str | None, last: str | None, effects: bool,
    dry_run: bool,
) -> dict[str, Any]:  # fmt: skip
    """Compute what is due in an environment; return what was computed, or would be.

    Raises VarveError where a run fails; what was computed before stays.
    """
    wanted = wanted_of(words, first, last)
    with opened(name) as environment:
        if dry_run:
            plan = environment.plan(wanted)
            return {"environment": name, "due": {dataset: list(paths) for dataset, paths in plan.due.items()}}
        began = time.monotonic()
        done = environment.run(wanted, effects=effects, before=announcing(console))
        stuck = {dataset: dict(paths) for dataset, paths in environment.plan(wanted).stuck.items()}
    return {
        "environment": name,
        "computed": {dataset: count for dataset, count in done.computed.items() if count},
        "taken": {dataset: count for dataset, count in done.taken.items() if count},
        **({"rewritten": done.rewritten} if done.rewritten else {}),
        "stuck": stuck,
        "seconds": round(time.monotonic() - began, 1),
    }


def land(name: str, dataset: str, file: Path, words: Sequence[str]) -> str:
    """Take a landing file into an environment; return its partition. Raises what `OpenEnvironment.land` raises."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if len(values) != len(words):
        raise BadInput(f"{' '.join(words)}: write column=value. Nothing was read.")
    with opened(name) as environment:
        return environment.land(dataset.replace("/", "."), file, values)


def promote(console: Console | None, name: str, behind: LeftBehind, *, run_first: bool, dry_run: bool) -> Promotion:
    """Promote an environment, or with `dry_run` only look at what that would do.

    That gets a number, with which `varve apply` does exactly that. Raises NotClosed with what would be inconsistent.
    """
    with opened(name) as environment, connected("promote") as connection:
        if not dry_run:
            return promote_opened(console, environment, connection, behind, run_first=run_first)
        promotion = _promoter(environment, connection).look(name, behind)
        if is_refused(promotion, behind) or not (promotion.batches or promotion.codes):
            return promotion
        return replace(promotion, number=Promotions(connection).keep(promotion.plan(behind), by=who()))


def promote_opened(
    console: Console | None, opened: OpenEnvironment, connection: psycopg.Connection, behind: LeftBehind, *,
    run_first: bool = True, only: Collection[str] | None = None, reason: str = "",
) -> Promotion:  # fmt: skip
    """Promote an environment; what production has moved meanwhile is computed before that with `run_first`.

    Raises NotClosed with what would be inconsistent.
    """
    promoter, name = _promoter(opened, connection, only, reason), opened.name
    for _ in range(_ROUNDS if run_first else 0):
        promotion = promoter.look(name, behind)
        if promotion.closure.moved:
            _run_what_moved(console, opened, connection, promotion)
            continue
        try:
            return _told(connection, promoter.promote(name, behind, by=who()))
        except NotClosed as error:
            # Production has moved between the look and the promotion.
            if not error.promotion.closure.moved:
                raise
    return _told(connection, promoter.promote(name, behind, by=who()))


def _told(connection: psycopg.Connection, promotion: Promotion) -> Promotion:
    """The promotion, after those who follow the lineage were told of it."""
    from varve.observe.lineage.moves import tell_moves

    if promotion.run_id:
        tell_moves(chosen_graph(), connection, chosen_settings().project, promotion.run_id)
    return promotion


def _run_what_moved(
    console: Console | None, opened: OpenEnvironment, connection: psycopg.Connection, promotion: Promotion
) -> None:
    """Compute in the environment what production has moved since."""
    # The base moves and not the code: nothing that was deployed meanwhile is undone by that.
    Environments(connection).rebase(opened.name, code_too=False)
    overlay: dict[str, set[str]] = {}
    for row in Environments(connection).overlay(opened.name):
        overlay.setdefault(row.dataset, set()).add(row.partition)
    # A new generation may lack partitions that production has had meanwhile.
    for dataset in promotion.generations:
        overlay.setdefault(dataset, set()).update(promotion.closure.moved.get(dataset, ()))
    opened.run(Wanted(paths=overlay), before=announcing(console))


def plan_of(number: int) -> PromotionPlan | None:
    """Return the plan of that number where it is a promotion of an environment, as `varve promote --dry-run` keeps it.

    Raises VarveError where it was made already.
    """
    with connected("apply") as connection:
        plan = Promotions(connection).of(number)
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
        promoter = _promoter(environment, connection)
        return _told(connection, promoter.promote(plan.environment, LeftBehind(plan.behind), by=who(), plan=plan))


def is_refused(promotion: Promotion, behind: LeftBehind) -> bool:
    """Return whether this promotion would be refused as it is."""
    return bool(promotion.closure.moved or (behind is not LeftBehind.RUN and promotion.closure.behind))


def behind_of(*, then_run: bool, only_consistent: bool) -> LeftBehind:
    """Return what the options say. Raises BadInput where they contradict each other."""
    if then_run and only_consistent:
        raise BadInput("--then-run and --only-consistent exclude each other. Nothing was promoted.")
    return LeftBehind.RUN if then_run else LeftBehind.LEAVE_OUT if only_consistent else LeftBehind.REFUSE


def values_of(environment: Environment) -> dict[str, Any]:
    """Return an environment as plain values for `--json`."""
    return {
        "name": environment.name,
        "base": environment.base,
        "base_at": None if environment.base_at is None else environment.base_at.isoformat(timespec="seconds"),
        "created_by": environment.created_by,
        "created_at": environment.created_at.isoformat(timespec="seconds"),
        "used_at": environment.used_at.isoformat(timespec="seconds"),
        "ttl_seconds": None if environment.ttl is None else environment.ttl.total_seconds(),
        "datasets": environment.datasets,
        "partitions": environment.partitions,
        "bytes_only_here": environment.size,
        "expired": environment.expired,
    }


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
        "left_out": promotion.left_out,
        "removed": list(promotion.removed),
    }


@contextmanager
def opened(name: str) -> Iterator[OpenEnvironment]:
    """Open an environment with the code of the project. Raises what `opened_environment` raises."""
    from varve.dagster.environments import opened_environment

    with opened_environment(chosen_project(), name) as environment:
        yield environment


def _promoter(
    opened: OpenEnvironment, connection: psycopg.Connection, only: Collection[str] | None = None, reason: str = ""
) -> Promoter:
    from varve.dagster.automation.planner_facts import limits_of

    settings, catalog = chosen_settings(), Catalog(connection)
    session = cache(lambda: open_session(settings))
    return Promoter(
        catalog, opened.graph, lambda dataset: open_store(dataset.store, settings, catalog, session),
        opened.members, limits_of(settings), pendulum.now("UTC"), None if only is None else frozenset(only),
        replace(opened.corrections, connection=connection), reason,
    )  # fmt: skip


def wanted_of(words: Sequence[str], first: str | None, last: str | None) -> Wanted:
    """Return what the words ask for. Raises BadInput for columns without a dataset."""
    datasets = tuple(word.replace("/", ".") for word in words if "=" not in word)
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if values and not datasets:
        raise BadInput(f"{' '.join(words)}: name the dataset before its columns. Nothing was computed.")
    return Wanted(datasets, values, first, last)


def announcing(console: Console | None) -> Callable[[Run], None]:
    """Return what prints a run that begins; nothing is printed without a console."""

    def announce(run: Run) -> None:
        if console is not None:
            line = f"{run.dataset.name} {some(run.partitions, limit=3)}: {run.reason}"
            console.print(line, markup=False, highlight=False)

    return announce
