"""The facts by which the planner judges partitions, and which of them have changed since it last looked.

Not here: judging (varve/planning) and marks (backfills.py).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.catalog.planning import statements
from varve.catalog.planning.comparing import sources_of, with_notes, with_other_traces, with_other_versions
from varve.catalog.planning.facts_together import asked_together
from varve.planning.judgement.facts import Accepted, Fact, Failure, Mark

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import psycopg

    from varve.planning.judgement.code import CodeState
    from varve.planning.judgement.facts import BulkFacts, DatasetInputs, WantedInputs

# By dataset: its partitions in flight, and the run that builds each.
InFlight = dict[str, dict[str, str]]

# Changes are kept for a day. A planner that has not looked for half a day judges everything again.
_KEPT, TRUSTED = dt.timedelta(days=1), dt.timedelta(hours=12)
# A planner that lives deletes older ones so often.
_FORGETS = dt.timedelta(hours=1)
_FAILURES = 24


@dataclass(frozen=True)
class CatalogFacts:
    """The facts in the catalog, over one connection in autocommit mode.

    Attributes:
        in_flight: the partitions that runs build, by the locks of living runs and by Dagster's queue.
        codes: the deployed code of each dataset, for `reconcile`.
    """

    connection: psycopg.Connection
    in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    codes: Mapping[str, CodeState] = field(default_factory=dict)

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """See `planning.facts.Facts`."""
        if paths is not None and not paths:
            return {}
        wanted_paths = None if paths is None else list(paths)
        parameters = (dataset, wanted_paths, wanted_paths)
        running = self.in_flight.get(dataset, {})
        rare_facts = self._rare_facts(dataset, parameters)
        for path, run in running.items():
            if paths is None or path in paths:
                rare_facts[path]["run"] = run
        facts = {}
        execute = self.connection.execute
        rows = (
            execute(statements.CURRENT, (dataset,), binary=True)
            if wanted_paths is None
            else execute(statements.CURRENT_OF, (dataset, wanted_paths), binary=True)
        )
        for path, batch, published, trace, same_rows, equal_in, made_by in rows:
            equal = [equal_batch for equal_batch, _, _ in same_rows or ()]
            rows_since = _rows_since(published, same_rows) if same_rows else 0.0
            if path in rare_facts:
                rare_facts[path] |= {
                    "batch": batch, "published": published, "trace": trace, "equal": equal, "made_by": made_by,
                    "equal_in": equal_in, "rows_since": rows_since,
                }  # fmt: skip
            else:
                facts[path] = Fact(
                    batch, published, equal, trace, made_by=made_by, equal_in=equal_in, rows_since=rows_since
                )
        return facts | {path: Fact(**fields) for path, fields in rare_facts.items()}  # type: ignore[arg-type]

    def existing_partitions(self, dataset: str) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        # All at once: while we fetch row by row, PostgreSQL waits for us.
        return {path for (path,) in self.connection.execute(statements.EXISTING, (dataset,)).fetchall()}

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """See `planning.facts.BulkFacts`."""
        paths = {*self.in_flight.get(dataset, ()), *with_notes(self.connection, [dataset]).get(dataset, ())}
        sources = sources_of(dataset, landing, reads)
        if all(source.paths is None for source in sources):
            return paths | with_other_versions(self.connection, {dataset: sources}).get(dataset, set())
        return paths | with_other_traces(self.connection, dataset, sources)

    def together(self, asked: Sequence[DatasetInputs], *, existing: bool) -> BulkFacts:
        """See `planning.facts.FactsOfGraph`."""
        return asked_together(self, self.connection, self.in_flight, asked, existing=existing)

    def _rare_facts(self, dataset: str, parameters: tuple[object, ...]) -> dict[str, dict[str, object]]:
        """The facts that do not come from batches, by partition; nearly always few partitions have any."""
        fields: dict[str, dict[str, object]] = defaultdict(dict)
        for path, fingerprint, at in self.connection.execute(statements.ARRIVALS, parameters):
            fields[path] |= {"arrival": fingerprint, "arrived": at}
        for path, since in self.connection.execute(statements.ON_HOLD, parameters):
            fields[path]["rolled_back"] = since
        accepted: dict[str, list[Accepted]] = defaultdict(list)
        for path, *acceptance in self.connection.execute(statements.ACCEPTED, parameters):
            accepted[path].append(Accepted(*acceptance))
        for path, acceptances in accepted.items():
            fields[path]["accepted"] = tuple(acceptances)
        marks: dict[str, list[Mark]] = defaultdict(list)
        for path, *mark in self.connection.execute(statements.MARKS, parameters):
            marks[path].append(Mark(*mark))
        for path, listed in marks.items():
            fields[path]["marks"] = tuple(listed)
        failed = self.connection.execute(statements.FAILURES, (time.time(), *parameters, _FAILURES)).fetchall()
        for path, failures in failures_of(self.connection, dataset, failed).items():
            fields[path]["failures"] = failures
        return fields


def failures_of(
    connection: psycopg.Connection, dataset: str, failed: Sequence[tuple[str, int, float, float, bool]]
) -> dict[str, tuple[Failure, ...]]:
    """The failures of a dataset by partition, in the order of `failed`.

    A row has the partition, the batch, when it began and ended, and whether a service was away.
    """
    ids = sorted({batch_id for _, batch_id, *_ in failed})
    together: dict[int, int] = {}
    if ids:
        together = dict(connection.execute(statements.FAILED_TOGETHER, (dataset, ids)).fetchall())
    failures: dict[str, list[Failure]] = defaultdict(list)
    for path, batch_id, began, ended, outage in failed:
        failures[path].append(Failure(began, ended, together.get(batch_id, 1), outage))
    return {path: tuple(listed) for path, listed in failures.items()}


def _rows_since(published_at: float, same_rows: Sequence[tuple[int, int | None, int | None]]) -> float:
    """Since when a partition has its rows, where batches with the same rows took each other's place.

    `same_rows` are the other batches with these rows: their ids, and from when until when they were current.
    """
    since = round(published_at * 1e6)
    began_by_end = {ended: began for _, began, ended in same_rows if began is not None and ended is not None}
    while (began := began_by_end.get(since, since)) < since:
        since = began
    return since / 1e6


def living(connection: psycopg.Connection, environment: str = "") -> InFlight:
    """The partitions that living builds hold, those of an environment or those of none."""
    in_flight: InFlight = defaultdict(dict)
    for dataset, path, run_id in connection.execute(statements.LIVING, (environment,)):
        in_flight[dataset][path] = run_id
    return in_flight


@dataclass
class Changes:
    """What has changed in the catalog between two looks. Remembers how far it has looked, and nothing else.

    Attributes:
        only_looks: whether old changes are left for others to delete.
    """

    only_looks: bool = False
    _horizon: str | None = None
    _catalog: str = ""
    _looked: dt.datetime | None = None
    _forgot: dt.datetime | None = None
    _in_flight: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def since_last(
        self, connection: psycopg.Connection, in_flight: Mapping[str, Mapping[str, str]]
    ) -> dict[str, set[str]] | None:
        """The partitions that have changed, by dataset; None where that is not known and all must be judged.

        Call it before the facts are looked up: a change in between is then seen twice, and not missed.
        """
        horizon, catalog, looked = self._horizon, self._catalog, self._looked
        before, now = self._in_flight, dt.datetime.now(dt.UTC)
        row = connection.execute(statements.HORIZON).fetchone()
        assert row is not None
        (self._horizon, self._catalog), self._looked, self._in_flight = row, now, in_flight
        # A catalog that was restored has other rows without a note of a change, and transactions of another server have
        # other numbers.
        if (
            horizon is None
            or catalog != self._catalog
            or looked is None
            or not dt.timedelta(0) <= now - looked < TRUSTED
        ):
            self._forget_old(connection, now)
            return None
        changed: dict[str, set[str]] = defaultdict(set)
        for dataset, path in connection.execute(statements.CHANGES, (horizon,)):
            changed[dataset].add(path)
        for dataset in {*before, *in_flight}:
            runs_before, runs_now = before.get(dataset, {}), in_flight.get(dataset, {})
            changed[dataset] |= {
                path for path in {*runs_before, *runs_now} if runs_before.get(path) != runs_now.get(path)
            }
        self._forget_old(connection, now)
        return {dataset: paths for dataset, paths in changed.items() if paths}

    def forget(self) -> None:
        """Forget the last look, which was not completed: the next one judges everything."""
        self._horizon = None

    def _forget_old(self, connection: psycopg.Connection, now: dt.datetime) -> None:
        """Delete old changes, once in an hour: every publish adds some."""
        if not self.only_looks and (self._forgot is None or not dt.timedelta(0) <= now - self._forgot < _FORGETS):
            connection.execute(statements.FORGET_CHANGES, (_KEPT,))
            self._forgot = now
