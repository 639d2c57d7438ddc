"""Backfills: dirty marks on many partitions at once, with a reason, that can be paused, resumed and cancelled.

A mark stays until a batch is current whose build began after the mark was set. Until then readers see the old batch.

Not here: which partitions a backfill marks (varve/planning/backfill.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog.planning import statements
from varve.catalog.planning.acceptances import Acceptances
from varve.model.errors import VarveError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.catalog.planning.acceptances import AcceptedInput


# So many of the last runs of a dataset tell what the next one will cost.
_RECENT_RUNS = 20


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill, and how far it has come.

    Attributes:
        state: `running`, `paused` or `cancelled`, as a person has set it; `done` where a running one has no marks left.
        marked, left: by dataset, how many partitions were marked, and how many of them are not computed yet.
    """

    number: int
    reason: str
    owner: str
    state: str
    marked: Mapping[str, int]
    left: Mapping[str, int]
    created_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Estimate:
    """What computing some partitions will cost: seconds of execution, and rows and bytes that are written."""

    seconds: float
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What the last runs of a dataset have cost.

    Attributes:
        runs: how many runs count.
        seconds: the median of their seconds, from the begin until what they wrote was verified to lie in the store.
        partitions: the median of their partitions.
        rows, size: the median of the rows and bytes that they wrote for a partition.
    """

    runs: int
    seconds: float
    partitions: float
    rows: float
    size: float

    def estimate(self, partitions: int, runs: int = 1) -> Estimate:
        """What so many partitions will cost in so many runs.

        The seconds grow with the number of partitions, and are rather too many than too few: a run takes some seconds
        however few partitions it has.
        """
        seconds = self.seconds * max(runs, partitions / max(self.partitions, 1.0))
        return Estimate(seconds, round(self.rows * partitions), round(self.size * partitions))


@dataclass(frozen=True)
class Backfills:
    """The backfills of a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def add(
        self,
        paths: Mapping[str, Sequence[str]],
        *,
        reason: str,
        owner: str,
        accepted: Sequence[AcceptedInput] = (),
    ) -> int:
        """Mark these partitions, by dataset, all at once or none. Returns the number of the backfill.

        What the backfill makes of the inputs in `accepted` makes no difference to their readers there.
        """
        marked = {name: len(listed) for name, listed in paths.items() if listed}
        with self.connection.transaction():
            number = self._number(statements.ADD_BACKFILL, (reason, owner, Jsonb(marked)))
            # All marks have this number: builds that began before it do not take them away.
            at = self._number(statements.NEXT_NUMBER, ())
            for name in marked:
                self.connection.execute(statements.MARK, (name, number, at, sorted(paths[name])))
            Acceptances(self.connection).add(accepted, reason=reason, owner=owner, backfill=number, mark=at)
        return number

    def listed(self, number: int | None = None) -> list[Backfill]:
        """All backfills, the newest first; or only the one with this number."""
        rows = self.connection.execute(statements.BACKFILLS, (number, number))
        return [
            Backfill(backfill_number, reason, owner, _state(state, left), marked, left, at)
            for backfill_number, reason, owner, state, marked, at, left in rows
        ]

    def pause(self, number: int) -> Backfill:
        """Launch no more runs for a backfill; runs in flight go on. Raises VarveError unless it is running."""
        return self._set(number, "paused", {"running"})

    def resume(self, number: int) -> Backfill:
        """Launch runs for a paused backfill again. Raises VarveError unless it is paused."""
        return self._set(number, "running", {"paused"})

    def cancel(self, number: int) -> Backfill:
        """Remove the marks of a backfill; what it has computed stays. Raises VarveError where it is over."""
        return self._set(number, "cancelled", {"running", "paused"})

    def leave_out(self, dataset: str, paths: Sequence[str]) -> None:
        """Remove the marks of partitions that leave the graph: no run computes them, and no backfill waits for them.

        What comes under their keys later is of no backfill, and is not accepted for its sake.
        """
        with self.connection.transaction():
            self.connection.execute(statements.UNMARK_PARTITIONS, (dataset, list(paths)))
            Acceptances(self.connection).cancel_of(dataset, paths)

    def costs(self, datasets: Sequence[str]) -> dict[str, Cost]:
        """What the last runs of each of these datasets have cost, as medians; nothing of a dataset that had none."""
        rows = self.connection.execute(statements.COSTS, (list(datasets), _RECENT_RUNS))
        return {name: Cost(*values) for name, *values in rows}

    def _set(self, number: int, state: str, allowed: set[str]) -> Backfill:
        with self.connection.transaction():
            self.connection.execute(statements.LOCK_BACKFILL, (number,))
            backfills = self.listed(number)
            if not backfills:
                raise VarveError(f"there is no backfill {number}; `varve backfill list` shows those there are.")
            if backfills[0].state not in allowed:
                raise VarveError(f"backfill {number} is {backfills[0].state}. Nothing was changed.")
            self.connection.execute(statements.SET_STATE, (state, number))
            if state == "cancelled":
                self.connection.execute(statements.KEEP_UNDONE, (number,))
                Acceptances(self.connection).cancel(number)
            self.connection.execute(statements.UNMARK if state == "cancelled" else statements.TOUCH, (number,))
            return self.listed(number)[0]

    def _number(self, statement: str, parameters: tuple[object, ...]) -> int:
        row = self.connection.execute(statement.encode(), parameters).fetchone()
        assert row is not None
        return int(row[0])


def _state(state: str, left: Mapping[str, int]) -> str:
    return "done" if state == "running" and not left else state
