"""`varve snapshot`: one state of all Iceberg tables, by one statement, for an engine that loads tables one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.cli.batches.history import opened, session
from varve.cli.batches.pins import BRANCH, PINNED, SNAPSHOT, is_reserved
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import who
from varve.model.errors import VarveError, some
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.history.history import History
    from varve.model.batch import BatchId

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def take(name: str | None, environment: str | None) -> list[dict[str, Any]]:
    """Return namespace, table and metadata location of every Iceberg table, as plain values.

    With a name, tag what the tables show, and pin their batches, in one transaction. Raises VarveError for a name that
    is none, has a meaning of its own or is that of an earlier snapshot, an unknown environment, and a name for the
    tables of an environment.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise VarveError(f"{name!r} is no name for a snapshot: letters, digits, and _ . - behind a letter.")
    if name is not None and is_reserved(name):
        raise VarveError(
            f"{name} can be no name for a snapshot: {BRANCH} is what readers of a table are shown, and names that "
            f"begin with {PINNED} are those of pinned batches, which `varve unpin` takes away. Nothing was changed. "
            "Choose another name."
        )
    if name is not None and environment is not None:
        raise VarveError("only what is current in production can be named. Leave out the name, or --env.")
    with opened() as history:
        connection = history.connection
        if environment is not None:
            Environments(connection).get(environment)
        catalog = Catalog(connection) if environment is None else EnvironmentCatalog(connection, environment)
        stores = [
            open_store(kind, chosen_settings(), catalog, session) for kind in sorted(set(history.stores().values()))
        ]
        if name is not None:
            with connection.transaction():
                _refuse_taken(history, name)
                for store in stores:
                    _pin(history, store.name_current(name), name)
        return [
            {"namespace": namespace, "table": table, "metadata_location": location}
            for store in stores
            for namespace, table, location in store.shown_together()
        ]


def show(console: Console, tables: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    rows = Table("table", "metadata")
    for table in tables:
        rows.add_row(f"{table['namespace']}.{table['table']}", table["metadata_location"])
    none = "There is no Iceberg table: varve[iceberg] is not installed, or nothing was published since."
    console.print(rows if tables else none)


def _refuse_taken(history: History, name: str) -> None:
    """Raise VarveError where an earlier snapshot has the name: moved in some tables, it would be of two moments."""
    if datasets := history.claim_owner(f"{SNAPSHOT}{name}"):
        raise VarveError(
            f"there is a snapshot {name} already, for which batches of {some(datasets)} are pinned. Nothing was "
            "changed. Choose another name; or, where nobody needs that one any more, take its pins and tags away, for "
            f"each dataset: varve unpin {datasets[0]} --owner '{SNAPSHOT}{name}'"
        )


def _pin(history: History, datasets: Sequence[str], name: str) -> None:
    """Keep what was named: its tables are locked, so that it is what is current."""
    reason = f"snapshot {name} of all Iceberg tables, by {who()}"
    for dataset in datasets:
        batches: dict[BatchId, list[str]] = {}
        for path, batch in Catalog(history.connection).current(dataset).items():
            batches.setdefault(batch.batch_id, []).append(path)
        for batch_id, paths in batches.items():
            history.pin(dataset, batch_id, paths, owner=f"{SNAPSHOT}{name}", reason=reason, expires_at=None)
