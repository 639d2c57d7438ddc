"""Acceptances: partitions that stay as they are although an input has changed, because a person has said so.

An acceptance names the version of the input that makes no difference. With any other version the partition is stale
again, by the ordinary rules; and its next batch, from whatever inputs, ends the acceptance.

Not here: what follows from it (varve/planning/judgement), and the trigger that fills in what a backfill makes
(upgrade_19.sql).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

_ADD = """
    insert into varve.acceptance
        (dataset, partition, source, source_partition, version, mark, backfill, reason, accepted_by)
    values (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_TAKE_BACK = "delete from varve.acceptance where dataset = %s and partition = any(%s)"
_PATHS = "select distinct partition from varve.acceptance where dataset = %s order by partition"
# What was published meanwhile is accepted: the backfill has made it.
_CANCEL = "delete from varve.acceptance where backfill = %s and version is null"
_CANCEL_OF = "delete from varve.acceptance where source = %s and source_partition = any(%s) and version is null"


class AcceptedInput(NamedTuple):
    """A partition, and an input whose change makes no difference to it.

    Attributes:
        version: of the input; "" where it is gone; None: what a backfill is about to make of it.
    """

    dataset: str
    path: str
    source: str
    source_path: str
    version: str | None = None


@dataclass(frozen=True)
class Acceptances:
    """The acceptances of a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def add(
        self,
        inputs: Sequence[AcceptedInput],
        *,
        reason: str,
        owner: str,
        backfill: int | None = None,
        mark: int | None = None,
    ) -> None:
        """Accept partitions with these inputs, all or none; `mark` is that of the backfill for unknown versions."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(_ADD, [(*accepted, mark, backfill, reason, owner) for accepted in inputs])

    def take_back(self, dataset: str, paths: Sequence[str]) -> None:
        """End the acceptances of these partitions: they are stale again where an input has changed."""
        self.connection.execute(_TAKE_BACK, (dataset, list(paths)))

    def paths(self, dataset: str) -> list[str]:
        """The partitions of a dataset that have an acceptance."""
        return [path for (path,) in self.connection.execute(_PATHS, (dataset,))]

    def cancel(self, backfill: int) -> None:
        """End the acceptances of what a backfill has not made yet."""
        self.connection.execute(_CANCEL, (backfill,))

    def cancel_of(self, source: str, paths: Sequence[str]) -> None:
        """End the acceptances of these partitions of a source that backfills have not made yet, and will not make."""
        self.connection.execute(_CANCEL_OF, (source, list(paths)))
