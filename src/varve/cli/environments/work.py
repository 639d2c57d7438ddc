"""What the commands over environments do.

Not here: their words and options (commands.py), what they print (report.py), and promotion (promotions.py).
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.owners import Owners
from varve.catalog.code.promotions import REVERT
from varve.catalog.environments.environments import Environment, Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.cli.context import chosen_project, chosen_settings
from varve.cli.files.roles import refuse_unknown_roles
from varve.cli.selection import by_column, span, who
from varve.model.errors import BadInput, VarveError, some
from varve.planning.environment_runs import Wanted
from varve.services.folders import environment_home
from varve.services.postgres import connect
from varve.services.spark import open_session
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import psycopg
    from rich.console import Console

    from varve.dagster.environments.open_environment import EnvironmentWork, OpenEnvironment
    from varve.planning.run_requests import Run
    from varve.stores.store import Store

# How the environments begin that commands make for themselves.
CORRECTION, EVOLVE = "correction_", "evolve_"
RESERVED = {CORRECTION: "varve correct", EVOLVE: "varve evolve", REVERT: "varve revert"}


@contextmanager
def connected(command: str) -> Iterator[psycopg.Connection]:
    """A connection to the catalog of the chosen project, which is made where it is missing."""
    with connect(chosen_settings(), application=f"varve {command}") as connection:
        Catalog(connection).ensure_schema()
        yield connection


def create(name: str, *, live: bool, ttl: str) -> Environment:
    """Make an environment. Raises BadInput for a name that cannot be one or is taken, VarveError for another span."""
    lasts = span(ttl)
    if command := next((command for beginning, command in RESERVED.items() if name.startswith(beginning)), None):
        raise BadInput(
            f"{name!r}: environments of such names are made by `{command}`, which goes on in them and forgets them. "
            "Choose another name. Nothing was made."
        )
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


def drop_expired(name: str) -> bool:
    """Forget an environment that nobody has used for its time, unless somebody uses it again; returns whether.

    Raises VarveError where somebody's own object depends on one of its views.
    """
    with connected("sweep") as connection:
        environments = Environments(connection)
        if not environments.get(name).expired:
            return False
        hide_views(connection, name)
        # Again: to hide them takes a while. Whoever came meanwhile keeps the batches, and has the views made anew.
        if not environments.drop_expired(name):
            return False
    shutil.rmtree(environment_home(chosen_settings(), name), ignore_errors=True)
    return True


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
        _refuse_taken_views(
            environments, name,
            [(databases[dataset.db], dataset.table, str(dataset.store)) for dataset in environment.graph.in_order()],
            lambda kind: open_store(kind, settings, catalog, session),
        )  # fmt: skip
        for dataset in environment.graph.in_order():
            store = open_store(dataset.store, settings, catalog, session)
            environments.note_view(name, databases[dataset.db], dataset.table, str(dataset.store))
            if store.show_as(dataset, list(catalog.current(dataset.name).values()), databases[dataset.db], readers):
                names.append(f"{databases[dataset.db]}.{dataset.table}")
        environments.use(name)
    return names


def _refuse_taken_views(
    environments: Environments, name: str, views: Sequence[tuple[str, str, str]], store_of: Callable[[str], Store]
) -> None:
    """Raise BadInput where something else is, or shows another environment, under one of these names."""
    taken = [f"{database}.{table} of environment {other}"
             for other, database, table in environments.views_of_others(name, views)]  # fmt: skip
    new: dict[tuple[str, str], list[str]] = {}
    for database, table, kind in set(views) - set(environments.views(name)):
        new.setdefault((kind, database), []).append(table)
    for (kind, database), tables in sorted(new.items()):
        taken += [f"{database}.{table}" for table in store_of(kind).taken(database, tables)]
    if taken:
        raise BadInput(
            f"there are already, and not of environment {name}: {some(sorted(set(taken)))}. Nothing was made or "
            "replaced. Take another name for the environment, or remove what is there."
        )


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
        of_others = Owners(connection, chosen_settings().project_name).others()
        moved = [
            dataset for dataset, code in environments.code(name).items()
            if dataset in deployed and dataset not in of_others
            and deployed[dataset].code_version not in {code.base, code.version}
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
            plan = environment.look(wanted)
            rewritten = {dataset: len(paths) for dataset, paths in plan.rewritten.items()}
            return {
                "environment": name,
                **({"rewritten": rewritten} if rewritten else {}),
                "due": {dataset: list(paths) for dataset, paths in plan.due.items()},
            }
        if console is not None:
            for line in _of_earlier_code(environment):
                console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
        began = time.monotonic()
        done = environment.run(wanted, effects=effects, before=announcing(console))
        stuck = {dataset: dict(paths) for dataset, paths in environment.plan(wanted).stuck.items()}
    return {
        "environment": name,
        **counts_of(done),
        **({"rewritten": done.rewritten} if done.rewritten else {}),
        "stuck": stuck,
        "seconds": round(time.monotonic() - began, 1),
    }


def counts_of(done: EnvironmentWork) -> dict[str, dict[str, int]]:
    """By dataset how many partitions were computed and taken, where there was any."""
    return {
        "computed": {dataset: count for dataset, count in done.computed.items() if count},
        "taken": {dataset: count for dataset, count in done.taken.items() if count},
    }


def _of_earlier_code(environment: OpenEnvironment) -> list[str]:
    """A line for each dataset whose code here was replaced in production: it may be of an old checkout."""
    deployments = Deployments(environment.connection)
    current = deployments.current()
    return [
        f"{name}: {until}. Is this checkout behind?"
        for name, version in environment.graph.code_versions.items()
        if name in current and version and version != current[name].code_version
        if (until := deployments.until(name, version))
    ]


def land(name: str, dataset: str, file: Path, words: Sequence[str]) -> str:
    """Take a landing file into an environment; return its partition. Raises what `arrivals.land` does."""
    from varve.dagster.environments.arrivals import land as land_in

    values = by_column(word for word in words if "=" in word)
    if any("=" not in word for word in words):
        raise BadInput(f"{' '.join(words)}: write column=value. Nothing was read.")
    with opened(name) as environment:
        return land_in(environment, dataset.replace("/", "."), file, values)


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


@contextmanager
def opened(name: str, *, shown: bool = True) -> Iterator[OpenEnvironment]:
    """Open an environment with the code of the project. Raises what `opened_environment` raises."""
    from varve.dagster.environments.open_environment import opened_environment

    with opened_environment(chosen_project(), name, shown=shown) as environment:
        yield environment


def wanted_of(words: Sequence[str], first: str | None, last: str | None) -> Wanted:
    """Return what the words ask for. Raises BadInput for columns without a dataset."""
    datasets = tuple(word.replace("/", ".") for word in words if "=" not in word)
    values = by_column(word for word in words if "=" in word)
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
