"""Backfills: dirty marks on many partitions at once, with a reason; how far each is; paused, resumed, cancelled.

A mark stays until a batch whose build began after it is in force, and the marked partition serves its old batch until
then.

Not here: which partitions a backfill marks (varve/planning/backfill.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog.planning import statements
from varve.model.errors import VarveError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    import psycopg


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill, and how far it is.

    Attributes:
        state: running, paused or cancelled, as a person has it; and done where no mark is left of a running one.
        marked, left: by dataset how many partitions were marked, and how many of them are not computed.
    """

    number: int
    reason: str
    owner: str
    state: str
    marked: Mapping[str, int]
    left: Mapping[str, int]
    created_at: dt.datetime


@dataclass(frozen=True, slots=True)
class Cost:
    """What runs of a dataset have cost: how many there were, and on average how many seconds and partitions."""

    runs: int
    seconds: float
    partitions: float


@dataclass(frozen=True)
class Backfills:
    """The backfills of a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def add(self, paths: Mapping[str, Sequence[str]], *, reason: str, owner: str) -> int:
        """Mark these partitions, by dataset, all at once or none; the number of the backfill."""
        marked = {name: len(listed) for name, listed in paths.items() if listed}
        with self.connection.transaction():
            number = self._one(statements.ADD_BACKFILL, (reason, owner, Jsonb(marked)))
            # One number for all of it: builds that have begun by now do not take the marks away.
            at = self._one(statements.NEXT_NUMBER, ())
            for name in marked:
                self.connection.execute(statements.MARK, (name, number, at, sorted(paths[name])))
        return number

    def listed(self, number: int | None = None) -> list[Backfill]:
        """All backfills, or one, the newest first."""
        rows = self.connection.execute(statements.BACKFILLS, (number, number))
        return [
            Backfill(found, reason, owner, _state(state, left), marked, left, at)
            for found, reason, owner, state, marked, at, left in rows
        ]

    def pause(self, number: int) -> Backfill:
        """Launch nothing more of it; what is in flight goes on. Raises VarveError where it is over."""
        return self._set(number, "paused", {"running"})

    def resume(self, number: int) -> Backfill:
        """Go on with it. Raises VarveError where it is not paused."""
        return self._set(number, "running", {"paused"})

    def cancel(self, number: int) -> Backfill:
        """Take its marks away; what it has computed stays. Raises VarveError where it is over."""
        return self._set(number, "cancelled", {"running", "paused"})

    def costs(self, datasets: Sequence[str]) -> dict[str, Cost]:
        """What the last runs of these datasets cost, where there were any."""
        rows = self.connection.execute(statements.COSTS, (list(datasets),))
        return {name: Cost(runs, seconds, partitions) for name, runs, seconds, partitions in rows}

    def _set(self, number: int, state: str, allowed: set[str]) -> Backfill:
        with self.connection.transaction():
            found = self.listed(number)
            if not found:
                raise VarveError(f"there is no backfill {number}; `varve backfill list` shows those there are.")
            if found[0].state not in allowed:
                raise VarveError(f"backfill {number} is {found[0].state}. Nothing was changed.")
            self.connection.execute(statements.SET_STATE, (state, number))
            if state == "cancelled":
                self.connection.execute(statements.KEEP_UNDONE, (number,))
            self.connection.execute(statements.UNMARK if state == "cancelled" else statements.TOUCH, (number,))
            return self.listed(number)[0]

    def _one(self, statement: str, parameters: tuple[object, ...]) -> int:
        row = self.connection.execute(statement.encode(), parameters).fetchone()
        assert row is not None
        return int(row[0])


def _state(state: str, left: Mapping[str, int]) -> str:
    return "done" if state == "running" and not left else state
