"""`varve drop`: end a dataset that the project does not declare any more, in an order that may be killed at any step.

1. Whatever stands in the way is found before anything is changed.
2. The capture of its table, where it has one, is ended; until the next step the dataset serves its last exact state.
3. One transaction ends it in the catalog: nothing of it is current any more. A view goes in the same transaction.
4. Its store shows readers nothing of it any more (the Hive table), and notes the drop. Each sweep makes up for that.
5. Dagster forgets which partitions of it were materialised.
6. The sweep deletes its batches when their time has come; with `--purge` at once.

Not here: what the catalog keeps of it (catalog/history/drops.py), and ending a capture (cdc/ending.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.history.drops import Drops, declared_name, is_dropped
from varve.cdc.ending import ending_capture
from varve.cli.batches import sweep
from varve.cli.batches.history import opened
from varve.cli.batches.sweep_report import Report
from varve.cli.batches.sweep_report import show as show_sweep
from varve.cli.context import chosen_project, chosen_settings
from varve.cli.selection import size_text, who
from varve.dagster.instance import forget_materialisations
from varve.model.errors import VarveError, counted, some
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from varve.catalog.history.drops import DroppedDataset
    from varve.catalog.history.history import History
    from varve.cdc.ending import EndingCapture
    from varve.planning.graph import Graph
    from varve.stores.store import Store

_NOTHING_CHANGED = "Nothing was changed."


@dataclass
class DropReport:
    """What a drop does, or has done.

    Attributes:
        done: whether it was done; False for a dry run.
        store: where its batches lie; empty where it has none.
        partitions: how many partitions readers see of it until then.
        batches: how many batches of it are kept, with those of earlier drops that are not deleted yet.
        size: their size in bytes.
        slot: the replication slot at the source that goes; empty where there is none.
        rejected_rows: the dataset of its rejected rows, which is dropped by itself; empty where it has none.
        purged: with `--purge`, what was deleted at once and what was left.
    """

    done: bool
    dataset: str
    store: str = ""
    partitions: int = 0
    batches: int = 0
    size: int = 0
    slot: str = ""
    rejected_rows: str = ""
    purged: Report | None = None

    def as_values(self) -> dict[str, Any]:
        """Return the report as plain values for `--json`."""
        values = asdict(self)
        values["bytes"] = values.pop("size")
        return values


def drop(
    name: str,
    *,
    purge: bool = False,
    dry_run: bool = False,
    source_is_gone: bool = False,
    although_read: bool = False,
    confirm: Callable[[DropReport], bool] = lambda _: True,
    step: Callable[[str], None] = lambda _: None,
) -> DropReport:
    """Drop a dataset, finish a drop that was killed, and with `purge` delete its data at once.

    `confirm` is asked before anything is purged; `step` is called with the name of each step before the step is taken,
    for tests that stop there.

    Raises VarveError, and changes nothing, where the project still declares the dataset or reads it, where another
    project reads it (unless it is dropped `although_read`), where somebody has pinned batches, where something of
    others depends on its view, and where the source of its capture cannot be reached; AlreadyBuilding where a run
    builds or captures it.
    """
    # Also by the name that the sweep shows for what is left of an earlier drop.
    name = declared_name(name.replace("/", "."))
    refuse_declared(name)
    settings = chosen_settings()
    with opened() as history:
        connection = history.connection
        Owners(connection, _graph().project).refuse([name])
        catalog, drops = Catalog(connection), Drops(connection)
        kind = history.stores().get(name)
        with ending_capture(connection, settings, name, source_is_gone=source_is_gone, step=step) as capture:
            if kind is None and capture is None and not drops.of(name):
                known = some(known_name for known_name in history.stores() if not is_dropped(known_name))
                raise VarveError(f"nothing of {name!r} was ever built; there are {known or 'none'}.")
            report = _report(catalog, name, kind, capture)
            store = None if kind is None else open_store(kind, settings, catalog, sweep.session)
            if store is not None:
                drops.refuse(name)
                if not although_read:
                    drops.refuse_read_elsewhere(name, _graph().project)
                store.refuse_drop(name)
            if capture is not None:
                capture.refuse()
            if dry_run:
                return report
            if purge and not confirm(report):
                raise VarveError(f"{name} was not dropped. {_NOTHING_CHANGED}")
            if capture is not None:
                capture.end()
            if store is not None:
                _end(store, drops, name, step)
        for dropped in drops.of(name):
            opened_store = open_store(dropped.store, settings, catalog, sweep.session)
            step("finish")
            if not dropped.finished:
                opened_store.finish_drop(dropped)
            forget_materialisations(settings, name)
            if purge:
                report.purged = report.purged or Report(done=True)
                _purge(report.purged, history, opened_store, dropped, step)
    report.done = True
    return report


def refuse_declared(name: str) -> None:
    """Raise VarveError where the project declares the dataset, may declare it, or has datasets that read it."""
    graph = _graph()
    if (dataset := graph.datasets.get(name)) is not None:
        declaring = f"the declaration of {dataset.rejected_of} does" if dataset.rejected_of else "the project does"
        also = f" It is read by {some(readers)}: change them too." if (readers := readers_of(name, graph)) else ""
        raise VarveError(
            f"{name} is still declared: {declaring} it. {_NOTHING_CHANGED} Delete the declaration first, and drop it "
            f"then.{also}"
        )
    if (broken := graph.broken_dataset(name)) is not None:
        declares = "declares it" if broken.name else "may declare it, and cannot be read"
        raise VarveError(f"{broken.file} {declares}. {_NOTHING_CHANGED} Delete that declaration, or mend the file.")
    if readers := readers_of(name, graph):
        raise VarveError(
            f"{name} is read by {some(readers)}. {_NOTHING_CHANGED} Let them read something else, or delete them, and "
            "drop it then."
        )


def readers_of(name: str, graph: Graph) -> list[str]:
    """Return the datasets of the project that read this one, with the files of those that cannot be used without it."""
    of_graph = {reader for reader, reads in graph.reads.items() if any(read.dataset.name == name for read in reads)}
    # As a table of others: its Hive table, or its view.
    by_name = {
        dataset.name for dataset in graph.datasets.values()
        if dataset.external is not None and dataset.external.name == name
    }  # fmt: skip
    broken = [
        f"{reader.title} ({reader.file})" for reader in graph.broken if name in (*reader.reads, *reader.waits_for)
    ]
    # One that is declared over the table of its own name, or reads its own past, is no reader to be changed.
    return sorted((of_graph | by_name) - {name}) + sorted(broken)


def show(console: Console, report: DropReport) -> None:
    """Print what was done, or would be."""
    would = "was" if report.done else "would be"
    if report.store:
        console.print(
            f"{report.dataset} {would} dropped, with its {counted(report.partitions, 'partition')} of the "
            f"{report.store}: nobody is shown anything of it any more.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    if report.slot:
        text = f"Its capture {would} ended; at the source the replication slot and publication {report.slot} {would}"
        console.print(f"{text} removed.", highlight=False, soft_wrap=True)
    if report.rejected_rows:
        text = f"Its rejected rows stay in {report.rejected_rows}: drop that too."
        console.print(text, highlight=False, soft_wrap=True)
    if report.purged is not None:
        show_sweep(console, report.purged)
    elif report.batches:
        console.print(
            f"{counted(report.batches, 'batch')}, {size_text(report.size)}: `varve sweep` deletes them when their time "
            f"has come; `varve drop {report.dataset} --purge` at once.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    if not report.done:
        console.print("Nothing was changed: this was a dry run.")


def _graph() -> Graph:
    from varve.dagster.discovery import load_project

    # Not `chosen_graph`: the last dataset of a project can be dropped too.
    return load_project(chosen_project()).graph


def _report(catalog: Catalog, name: str, kind: str | None, capture: EndingCapture | None) -> DropReport:
    report = DropReport(done=False, dataset=name, store=kind or "", slot=(capture and capture.slot) or "")
    drops = Drops(catalog.connection)
    for known_name in (name, *(dropped.remains for dropped in drops.of(name))):
        batches, size = drops.kept(known_name, "published", "retired")
        report.batches += batches
        report.size += size
    report.partitions = len(catalog.current(name))
    declaration = next((declared for known, _, declared in catalog.declared() if known == name), {})
    report.rejected_rows = str(declaration.get("reject_into", [0, ""])[1])
    return report


def _end(store: Store, drops: Drops, name: str, step: Callable[[str], None]) -> None:
    def end() -> DroppedDataset:
        with drops.connection.transaction():
            dropped = drops.drop(name, by=who())
            step("commit")
        return dropped

    step("drop")
    store.drop(name, end)


def _purge(
    report: Report, history: History, store: Store, dropped: DroppedDataset, step: Callable[[str], None]
) -> None:
    """Delete all data of a dropped dataset, except what a run that lives may read."""
    none = dt.timedelta(0)
    step("mark")
    sweep.mark(report, history, history.retired(dropped.remains, older_than=none, keep_last=0))
    step("delete")
    catalog = Catalog(history.connection)
    others = Generations(history.connection).stores() - {dropped.store}
    stores = {kind: open_store(kind, chosen_settings(), catalog, sweep.session) for kind in others}
    sweep.delete_swept(report, history, {**stores, dropped.store: store}, dropped.remains)
    sweep.sweep_leftovers(report, history, store, dropped.name, none)
    step("forget")
    sweep.forget_dropped(history, {dropped.store: store}, dropped.name)
