"""`varve sweep`: delete the data of batches that no reader can reach any more; a dry run says what it would delete."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.environments.environments import Environments
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import RetainedBatches
from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.parts import Parts
from varve.catalog.rows import retained_of
from varve.cli.batches.history import built, opened
from varve.cli.batches.sweep_report import Amount, Report
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.environments.work import drop_expired
from varve.cli.selection import refuse_of_others
from varve.dagster.runs.builds.telling import tell_killed
from varve.model.errors import StillShown, VarveError
from varve.project import NoProject
from varve.stores.catching_up import catch_up
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from varve.catalog.history.history import History
    from varve.catalog.history.rows import Retired
    from varve.model.inventory import Leftover
    from varve.planning.graph import Graph
    from varve.stores.store import Store

# What belongs to no batch is left alone for so long unless a person says otherwise: a run may still write it.
ORPHANS_OLDER_THAN = dt.timedelta(days=1)
# How many batches are deleted before the catalog notes it; after a crash at most so many are deleted a second time.
_GROUP_SIZE = 500


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
        if dataset is not None:
            refuse_of_others(history.connection, [dataset], "Nothing was swept.")
        kinds, generations = built(history, dataset), Generations(history.connection)
        # Only the declarations of their own project say how long their batches are retained.
        of_others = Owners(history.connection, _project_name()).others()
        report.of_other_projects = sorted(of_others.keys() & kinds.keys())
        kinds = {name: kind for name, kind in kinds.items() if name not in of_others}
        stores = {
            kind: open_store(kind, settings, catalog, session) for kind in {*kinds.values(), *generations.stores()}
        }
        report.expired_environments = [
            environment.name for environment in Environments(history.connection).all() if environment.expired
        ]
        if not dry_run:
            graph = _graph()
            killed = KilledBuilds(catalog.connection)
            report.failed_builds = killed.fail()
            if graph is not None:
                tell_killed(graph, catalog.connection, settings)
            killed.forget_old()
            history.forget_expired()
            history.forget_left()
            _forget_environments(report)
            _finish_drops(report, history, stores, dataset)
            catch_up(catalog, stores.__getitem__, graph.datasets if graph is not None else {}, kinds,
                     report.problems.append)  # fmt: skip
        declared = _declared(generations, kinds)
        # A dataset that was dropped, and perhaps declared again, has several names in the catalog.
        for name in [None] if dataset is None else kinds:
            retired = [
                batch
                for batch in history.retired(name, older_than=older_than, keep_last=keep_last, declared=declared)
                if batch.dataset not in of_others
            ]
            if dry_run:
                _note_kept(report, retired)
                undeleted = [batch for batch in history.undeleted(name) if batch.dataset not in of_others]
                _count(report.batches, [*undeleted, *(batch for batch in retired if not batch.kept)])
            else:
                mark(report, history, retired)
                delete_swept(report, history, stores, name, of_others)
        for store in stores.values():
            sweep_leftovers(report, history, store, dataset, orphans_older_than)
        for name in () if dry_run else kinds:
            Parts(history.connection).forget(name)
        if not dry_run:
            forget_dropped(history, stores, dataset)
    return report


def mark(report: Report, history: History, retired: Sequence[Retired]) -> None:
    """Mark as swept the batches that nothing keeps, and report those that something does."""
    _note_kept(report, retired)
    history.mark_swept([batch for batch in retired if not batch.kept])


def delete_swept(
    report: Report, history: History, stores: Mapping[str, Store], name: str | None, of_others: Container[str] = ()
) -> None:
    """Delete the data of batches that are marked as swept, of one dataset of the catalog or of all, and record that.

    Those `of_others`, datasets of other projects, stay.
    """
    for group in _in_groups([batch for batch in history.undeleted(name) if batch.dataset not in of_others]):
        store = stores[group[0].store]
        deleted_locations = _delete(report, store, group[0].dataset, [batch.location for batch in group])
        deleted_batches = [batch for batch in group if batch.location in deleted_locations]
        history.deleted(deleted_batches)
        _count(report.batches, deleted_batches)


def forget_dropped(history: History, stores: Mapping[str, Store], dataset: str | None) -> None:
    """Delete what the catalog and the stores remember of dropped datasets whose data is deleted."""
    drops = Drops(history.connection)
    for dropped in drops.of(dataset):
        if dropped.finished and not drops.has_data(dropped):
            stores[dropped.store].forget_drop(dropped)
            drops.forget(dropped)


def _forget_environments(report: Report) -> None:
    """Forget what nobody has used for its time; what cannot be forgotten is told, and keeps nothing else."""
    for expired in list(report.expired_environments):
        try:
            if not drop_expired(expired):
                # Somebody has begun to use it again since the sweep looked.
                report.expired_environments.remove(expired)
        except VarveError as error:
            report.expired_environments.remove(expired)
            report.problems.append(f"environment {expired}, which nobody has used for its time: {error}")


def _declared(generations: Generations, names: Iterable[str]) -> dict[str, RetainedBatches | None]:
    """What these datasets say of how long their batches are retained; None where their files cannot be read.

    One that is not declared here, as in a checkout that is behind, is as its last publish has declared it. Those that
    were dropped have another name in the catalog, and are retained no longer.
    """
    graph, elsewhere = _graph(), list[str]()
    declared: dict[str, RetainedBatches | None] = {}
    for name in names:
        dataset = None if graph is None else graph.datasets.get(name)
        if dataset is not None:
            policy = dataset.policy
            declared[name] = RetainedBatches(policy.retain_batches or dt.timedelta(0), policy.retain_last)
        elif graph is not None and graph.broken_dataset(name) is not None:
            declared[name] = None
        elif "#" not in name:
            elsewhere.append(name)
    for name, published in generations.published(elsewhere).items():
        if (retained := retained_of(published.declaration)) is not None:
            declared[name] = RetainedBatches(*retained)
    return declared


def _project_name() -> str:
    graph = _graph()
    return "" if graph is None else graph.project


def _graph() -> Graph | None:
    """What the project declares; None where that is nothing, as after the last of its datasets went."""
    try:
        return chosen_graph()
    except NoProject:
        return None


def _finish_drops(report: Report, history: History, stores: Mapping[str, Store], dataset: str | None) -> None:
    """Finish the drops that were killed; what cannot be finished is reported, and its data is not swept."""
    for dropped in Drops(history.connection).of(dataset):
        if not dropped.finished:
            try:
                stores[dropped.store].finish_drop(dropped)
            except VarveError as error:
                report.problems.append(f"{dropped.name} was dropped, and readers may still see it: {error}")


def _note_kept(report: Report, retired: Sequence[Retired]) -> None:
    for batch in retired:
        if batch.kept:
            report.kept.setdefault(batch.kept, Amount()).add(batch.size)


def sweep_leftovers(
    report: Report, history: History, store: Store, dataset: str | None, older_than: dt.timedelta
) -> None:
    """Delete leftovers that are older than any run which may still write them, and report what was deleted."""
    # Where the clock of this machine is wrong, what is young must not be old by that.
    horizon = min(dt.datetime.now(dt.UTC), history.now()) - older_than
    # Ask for the oldest run before the folders are listed: what a later run writes is younger than all that is listed.
    if (oldest_run := history.oldest_living()) is not None:
        horizon = min(horizon, oldest_run)
    deletable: list[Leftover] = []
    strays: list[str] = []
    for leftover in _reported_leftovers(report, store, dataset, horizon):
        if not leftover.dataset:
            strays.append(leftover.location)
        elif leftover.changed_at is None:
            report.ageless.append(leftover.location)
        elif leftover.changed_at > horizon:
            report.young_orphans.add(leftover.size)
        else:
            deletable.append(leftover)
    if strays or (dataset is None and report.done):
        report.strays += store.unnamed(strays) if report.done else strays
    for name in sorted({leftover.dataset for leftover in deletable}):
        of_dataset = [leftover for leftover in deletable if leftover.dataset == name]
        deleted_locations = (
            _delete(report, store, name, [leftover.location for leftover in of_dataset]) if report.done else None
        )
        for leftover in of_dataset:
            if deleted_locations is None or leftover.location in deleted_locations:
                report.orphan_locations.append(leftover.location)
                report.orphans.setdefault(name, Amount()).add(leftover.size)


def _reported_leftovers(report: Report, store: Store, dataset: str | None, horizon: dt.datetime) -> Iterable[Leftover]:
    """Yield the leftovers of which the report tells. Those that every publish leaves are deleted without a word."""
    superseded: dict[str, list[str]] = {}
    for leftover in store.leftovers():
        if dataset is not None and leftover.dataset != dataset:
            continue
        if not leftover.superseded:
            yield leftover
        elif leftover.changed_at is not None and leftover.changed_at <= horizon:
            superseded.setdefault(leftover.dataset, []).append(leftover.location)
    for name, locations in sorted(superseded.items()) if report.done else ():
        _delete(report, store, name, locations)


def _delete(report: Report, store: Store, dataset: str, locations: Sequence[str]) -> set[str]:
    """Delete the data at these locations, and return the locations that are deleted.

    An error at one location is added to the report, and the others are deleted all the same. Where readers are still
    shown one of them, none is.
    """
    try:
        store.sweep(dataset, locations)
    except VarveError as error:
        if len(locations) == 1 or isinstance(error, StillShown):
            report.problems.append(str(error))
            return set()
        return {deleted for location in locations for deleted in _delete(report, store, dataset, [location])}
    return set(locations)


def _in_groups(pending: Sequence[Retired]) -> Iterable[list[Retired]]:
    for place in Counter((batch.dataset, batch.store) for batch in pending):
        of_dataset = [batch for batch in pending if (batch.dataset, batch.store) == place]
        for start in range(0, len(of_dataset), _GROUP_SIZE):
            yield of_dataset[start : start + _GROUP_SIZE]


def _count(amounts: dict[str, Amount], batches: Iterable[Retired]) -> None:
    for batch in batches:
        amounts.setdefault(batch.dataset, Amount()).add(batch.size)


def session() -> Any:
    """Open a session of the chosen project's Spark."""
    from varve.services.spark import open_session

    return open_session(chosen_settings())
