"""The session locks of partitions: one build at a time, and a dead run's locks are freed by whoever wants them.

Whoever loses the connection loses the locks, and cannot publish.

Not here: leases, by which a run counts as dead (leases.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog import statements
from varve.catalog.living.leases import Leases, describe_holder
from varve.model.errors import AlreadyBuilding, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    import psycopg

    from varve.model.dataset import Dataset


@dataclass(frozen=True)
class PartitionLocks:
    """Locks of an environment, or of production (""), over one connection."""

    connection: psycopg.Connection
    environment: str

    def take(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """Lock all of the partitions. Raises AlreadyBuilding, naming the run that holds one, and then locks none."""
        locked_by_others = self._try(dataset, paths)
        if locked_by_others and self._end_dead_holders(dataset, locked_by_others):
            locked_by_others = self._try(dataset, paths)
        if locked_by_others:
            raise self._already_building(dataset, locked_by_others)

    def release(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """Release locks that this connection holds."""
        self.connection.execute(statements.UNLOCK, (self._name(dataset), list(paths)))

    def _name(self, dataset: Dataset) -> str:
        """By which the partitions of a dataset are locked: an environment builds beside production (`varve.living`)."""
        return f"{dataset.name}@{self.environment}" if self.environment else dataset.name

    def _try(self, dataset: Dataset, paths: Sequence[str]) -> list[str]:
        """Lock all of the partitions, or none. Returns those that other runs have locked."""
        name = self._name(dataset)
        attempts = self.connection.execute(statements.LOCK, (name, paths)).fetchall()
        locked_by_others = [path for path, locked in attempts if not locked]
        if locked_by_others:
            self.connection.execute(statements.UNLOCK, (name, [path for path, locked in attempts if locked]))
        return locked_by_others

    def _end_dead_holders(self, dataset: Dataset, locked_by_others: Sequence[str]) -> bool:
        """End the sessions of dead runs that hold these partitions, where we may. Returns whether there was one."""
        holders = self._holders(dataset, locked_by_others)
        leases = Leases(self.connection)
        dead = leases.dead_runs({run_id for _, run_id, _ in holders})
        for run_id in dead:
            leases.end_sessions(run_id)
        return bool(dead)

    def _holders(self, dataset: Dataset, locked: Sequence[str]) -> list[tuple[str, str, dt.datetime]]:
        """(partition, run, since when) of the builds that hold these partitions."""
        parameters = (dataset.name, self.environment, list(locked))
        return self.connection.execute(statements.HOLDERS, parameters).fetchall()

    def _already_building(self, dataset: Dataset, locked_by_others: Sequence[str]) -> AlreadyBuilding:
        holders = self._holders(dataset, locked_by_others)
        leases = Leases(self.connection)
        leases_by_run = {run_id: describe_holder(leases, run_id) for run_id in {run_id for _, run_id, _ in holders}}
        descriptions = [
            f"{path} (run {run_id}, since {at:%Y-%m-%d %H:%M:%S} UTC{leases_by_run[run_id]})"
            for path, run_id, at in holders
        ]
        return AlreadyBuilding(
            f"{dataset}: another run is building {some(descriptions or locked_by_others, limit=3)}. One run writes a "
            "partition at a time; nothing was changed by this one. Wait for the other, or end it, and run again."
        )
