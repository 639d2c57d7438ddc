"""`varve sweep`: delete what no reader can reach any more, slowly and on purpose; a dry run says what it would do."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.parts import Parts
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.history import built, opened
from varve.cli.printing import Table
from varve.cli.selection import size_text
from varve.model.dataset import StoreKind
from varve.model.errors import ServiceUnavailable, VarveError, counted
from varve.stores.open import open_store
from varve.stores.warehouse.tables import notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from varve.catalog.history.history import History
    from varve.catalog.history.rows import Retired
    from varve.model.inventory import Leftover
    from varve.stores.store import Store

# A crash in between deletes at most so many folders a second time.
_AT_ONCE = 500
_WHY = {
    "pinned": "pinned",
    "shown": "the Hive table may still show it",
    "recent": "retired too recently",
    "last": "among the last of its partition",
    "in use": "a run that lives may read it",
}


@dataclass
class Amount:
    """How many batches or folders, and their bytes."""

    count: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        """One more."""
        self.count += 1
        self.size += size


@dataclass
class Report:
    """What a sweep took, or would take, and what it left."""

    done: bool
    batches: dict[str, Amount] = field(default_factory=dict)
    orphans: dict[str, Amount] = field(default_factory=dict)
    orphan_locations: list[str] = field(default_factory=list)
    kept: dict[str, Amount] = field(default_factory=dict)
    young_orphans: Amount = field(default_factory=Amount)
    ageless: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    buried: int = 0

    def as_values(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def sweep(
    *,
    dataset: str | None,
    older_than: dt.timedelta,
    keep_last: int,
    orphans_older_than: dt.timedelta,
    dry_run: bool,
) -> Report:
    """Sweep the retired batches of one dataset or of all, and the leftovers of every store in use."""
    settings = chosen_settings()
    report = Report(done=not dry_run)
    with opened() as history:
        catalog = Catalog(history.connection)
        kinds = built(history, dataset)
        stores = {
            StoreKind(kind): open_store(StoreKind(kind), settings, catalog, _session) for kind in set(kinds.values())
        }
        if not dry_run:
            report.buried = catalog.bury_dead()
            history.forget_expired()
            _follow(catalog, stores, kinds)
        retired = history.retired(dataset, older_than=older_than, keep_last=keep_last)
        for one in retired:
            if one.kept:
                report.kept.setdefault(one.kept, Amount()).add(one.size)
        if dry_run:
            _count(report.batches, [*history.undeleted(dataset), *(one for one in retired if not one.kept)])
        else:
            history.mark_swept([one for one in retired if not one.kept])
            for group in _groups(history.undeleted(dataset)):
                store = stores[StoreKind(group[0].store)]
                gone = _removed(report, store, group[0].dataset, [one.location for one in group])
                done = [one for one in group if one.location in gone]
                history.deleted(done)
                _count(report.batches, done)
        for store in stores.values():
            sweep_leftovers(report, history, store, dataset, orphans_older_than)
        for name in () if dry_run else kinds:
            Parts(history.connection).forget(name)
    return report


def show(console: Console, report: Report) -> None:
    """The report for people."""
    table = Table("dataset", "batches", "size", "orphans", "size", title_justify="left",
                  title="Swept" if report.done else "Would be swept")  # fmt: skip
    for name in sorted({*report.batches, *report.orphans}):
        batches, orphans = report.batches.get(name, Amount()), report.orphans.get(name, Amount())
        table.add_row(
            name, f"{batches.count:,}", size_text(batches.size), f"{orphans.count:,}", size_text(orphans.size)
        )
    console.print(table if table.row_count else f"No batch {'was' if report.done else 'is'} to be swept.")
    if report.buried:
        console.print(
            f"Closed: {counted(report.buried, 'build')} of runs that were killed; they had published nothing."
        )
    for why, amount in sorted(report.kept.items()):
        console.print(f"Left: {counted(amount.count, 'retired batch')}, {size_text(amount.size)}: {_WHY[why]}.")
    if report.young_orphans.count:
        console.print(
            f"Left: {counted(report.young_orphans.count, 'folder')} of no batch, "
            f"{size_text(report.young_orphans.size)}: too young, a run may still be writing them."
        )
    for location in report.ageless:
        console.print(f"Left: {location}: of no batch, and nobody can say how old it is.", soft_wrap=True)
    for location in report.strays:
        told = f"Not ours: {location}, in a schema of Varve's. It stays; its owner may want to move it elsewhere."
        console.print(told, soft_wrap=True)
    for problem in report.problems:
        console.print(f"Left: {problem}", markup=False, soft_wrap=True)
    if not report.done:
        console.print("Nothing was changed: this was a dry run.")


def _follow(catalog: Catalog, stores: dict[StoreKind, Store], names: Iterable[str]) -> None:
    """Let lagging projections catch up, so that no reader needs what is retired. What cannot is left to its data."""
    for name in names:
        lags = catalog.lagging(name) or catalog.withdrawn(name)
        if lags and (dataset := chosen_graph().datasets.get(name)) is not None:
            try:
                stores[dataset.store].follow(dataset)
            except ServiceUnavailable:
                continue


def sweep_leftovers(
    report: Report, history: History, store: Store, dataset: str | None, older_than: dt.timedelta
) -> None:
    """Delete what is older than any run that may still write it, and add to the report what was deleted."""
    horizon = dt.datetime.now(dt.UTC) - older_than
    # Asked before the folders are listed: what begins later is younger than what they hold.
    if (living := history.oldest_living()) is not None:
        horizon = min(horizon, living)
    old: list[Leftover] = []
    strays: list[str] = []
    for leftover in store.leftovers():
        if dataset is not None and leftover.dataset != dataset:
            continue
        if not leftover.dataset:
            strays.append(leftover.location)
        elif leftover.changed_at is None:
            report.ageless.append(leftover.location)
        elif leftover.changed_at > horizon:
            report.young_orphans.add(leftover.size)
        else:
            old.append(leftover)
    if strays or (dataset is None and report.done):
        notes.ensure_tables(history.connection)
        report.strays += notes.newly_named(history.connection, strays) if report.done else strays
    for name in sorted({leftover.dataset for leftover in old}):
        mine = [leftover for leftover in old if leftover.dataset == name]
        gone = _removed(report, store, name, [leftover.location for leftover in mine]) if report.done else None
        for leftover in mine:
            if gone is None or leftover.location in gone:
                report.orphan_locations.append(leftover.location)
                report.orphans.setdefault(name, Amount()).add(leftover.size)


def _removed(report: Report, store: Store, dataset: str, locations: Sequence[str]) -> set[str]:
    """Delete these; those that are gone. What is in the way of one stands in the report, and keeps no other."""
    try:
        store.sweep(dataset, locations)
    except VarveError as error:
        if len(locations) == 1:
            report.problems.append(str(error))
            return set()
        return {gone for location in locations for gone in _removed(report, store, dataset, [location])}
    return set(locations)


def _groups(pending: Sequence[Retired]) -> Iterable[list[Retired]]:
    for name in Counter(one.dataset for one in pending):
        mine = [one for one in pending if one.dataset == name]
        for start in range(0, len(mine), _AT_ONCE):
            yield mine[start : start + _AT_ONCE]


def _count(into: dict[str, Amount], batches: Iterable[Retired]) -> None:
    for one in batches:
        into.setdefault(one.dataset, Amount()).add(one.size)


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
