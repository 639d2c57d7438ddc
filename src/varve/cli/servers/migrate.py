"""`varve migrate`: bring the catalog to the version that this Varve needs, while older code goes on.

Not here: what a step does, and when it is refused (varve/catalog/schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.schema import CatalogSchema, CatalogState, Upgrade, state_of
from varve.cli.context import chosen_settings
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


@dataclass(frozen=True)
class Migration:
    """What was done, or would be done.

    Attributes:
        before: the state of the catalog before; None where there was none.
        upgrades: the steps that were run, or would be.
        version: of the catalog now, or afterwards.
    """

    before: CatalogState | None
    upgrades: Sequence[Upgrade]
    version: int
    dry_run: bool = False

    def as_values(self) -> dict[str, Any]:
        """The same as plain values for `--json`."""
        steps = [
            {"version": upgrade.version, "oldest_code": upgrade.oldest, "what": upgrade.what}
            for upgrade in self.upgrades
        ]
        used = self.before.used if self.before else {}
        return {
            "before": self.before.version if self.before else None, "version": self.version, "dry_run": self.dry_run,
            "steps": steps, "seconds_since_used": {str(version): round(ago) for version, ago in used.items()},
        }  # fmt: skip


def migrate(console: Console | None, *, dry_run: bool, force: bool) -> Migration:
    """Bring the catalog up to date, and say each step before it is run. Raises UnfitCatalog where it must not be."""
    schema = CatalogSchema()
    with connect(chosen_settings(), application="varve migrate") as connection:
        state = state_of(connection)
        if state is not None and state.version > schema.version:
            schema.refuse_unfit(connection)
        if dry_run:
            upgrades = schema.upgrades(state.version) if state is not None else []
            version = state.version if state is not None and not upgrades else schema.version
            return Migration(state, upgrades, version, dry_run=True)
        done = schema.migrate(connection, force=force, before=lambda upgrade: _tell(console, upgrade))
        after = state_of(connection)
    return Migration(state, done, after.version if after else schema.version)


def show(console: Console, migration: Migration) -> None:
    """Print what the catalog is now; with a dry run, each step."""
    if migration.dry_run:
        for upgrade in migration.upgrades:
            _tell(console, upgrade)
        if migration.upgrades and migration.before is not None:
            for version, ago in sorted(migration.before.used.items()):
                console.print(f"Code of version {version} was here {ago:,.0f} s ago.", highlight=False)
            console.print("Nothing was changed: this was a dry run.")
            return
    if migration.before is None:
        verb = "would be made" if migration.dry_run else "was made"
        console.print(f"There was no catalog. One of version {migration.version} {verb}.", highlight=False)
        return
    newer = migration.version > CatalogSchema().version
    why = "a newer Varve has made it, and this one may use it" if newer else "which this Varve needs"
    nothing = "" if migration.upgrades else ": nothing to do"
    console.print(f"The catalog has version {migration.version}, {why}{nothing}.", highlight=False, soft_wrap=True)


def _tell(console: Console | None, upgrade: Upgrade) -> None:
    if console is not None:
        console.print(
            f"{upgrade.version}: {upgrade.what}. For code from version {upgrade.oldest} on.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
