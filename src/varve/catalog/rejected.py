"""Rejected files, rejected rows and what a sensor's tick left out, in the catalog, where people can see them.

Why they are states of the catalog: docs/decisions/0009. Not here: why something is rejected
(planning/arrivals/arrivals.py), and who looks (dagster/automation/sensors.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

from varve.planning.arrivals.arrivals import Rejected
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

_COLUMNS: LiteralString = """
    kind, reason, extract(epoch from since)::float8, extract(epoch from seen_at)::float8, partition, bytes, stamp,
    extract(epoch from changed_at)::float8, extract(epoch from until)::float8, declared
"""
_OF: LiteralString = "select uri, " + _COLUMNS + " from varve.rejected_arrival where dataset = %s"  # noqa: S608
_ALL: LiteralString = f"select dataset, uri, {_COLUMNS} from varve.rejected_arrival order by dataset, uri"  # noqa: S608 - our own
_WRITE = """
    insert into varve.rejected_arrival (
        dataset, uri, kind, reason, since, seen_at, partition, bytes, stamp, changed_at, until, declared
    ) values (
        %s, %s, %s, %s, to_timestamp(%s), to_timestamp(%s), %s, %s, %s, to_timestamp(%s), to_timestamp(%s), %s
    )
    on conflict (dataset, uri) do update set
        kind = excluded.kind, reason = excluded.reason, since = excluded.since, seen_at = excluded.seen_at,
        partition = excluded.partition, bytes = excluded.bytes, stamp = excluded.stamp,
        changed_at = excluded.changed_at, until = excluded.until, declared = excluded.declared
"""
_GONE = "delete from varve.rejected_arrival where dataset = %s and uri = any(%s)"
_LEFT_OUT = (
    "select sensor, dataset, kind, subject, partitions, reason, since from varve.left_out order by since, 1, 2, 3"
)
_LEAVE_OUT = """
    insert into varve.left_out (sensor, dataset, kind, subject, partitions, reason) values (%s, %s, %s, %s, %s, %s)
    on conflict (sensor, dataset, kind, subject)
    do update set partitions = excluded.partitions, reason = excluded.reason
"""
_NO_MORE = """
    delete from varve.left_out o where sensor = %s and not exists (
        select from unnest(%s::text[], %s::text[], %s::text[]) n (dataset, kind, subject)
        where (n.dataset, n.kind, n.subject) = (o.dataset, o.kind, o.subject))
"""
# By dataset: few have rejected rows, and joined at once PostgreSQL reads the whole table of batches.
_ROWS = """
    select d.dataset, b.partition, b.rows, (d.declaration -> 'reject_into' ->> 0)::bigint, b.dataset
    from varve.dataset d cross join lateral (
        select x.dataset, x.partition, x.rows from varve.batch x
        where x.dataset = d.declaration -> 'reject_into' ->> 1 and x.state = 'published' and x.rows > 0
            and (%(partition)s::text is null or x.partition = %(partition)s) offset 0
    ) b
    where d.declaration ->> 'reject_into' is not null and (%(dataset)s::text is null or d.dataset = %(dataset)s)
    order by 1, 2
"""
# The end of the year 9999: a file's time of change may be later than PostgreSQL can store.
_LATEST = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that a sensor's tick could not do.

    Attributes:
        kind: `look` (at arriving files), `plan` (judge the dataset) or `request` (ask for a run).
        subject: the partitions of a request, as people read them.
    """

    dataset: str
    kind: str
    reason: str
    subject: str = ""
    partitions: tuple[str, ...] = ()
    sensor: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """How many rows of a current partition of a landing dataset were rejected, and how many may be.

    Attributes:
        into: the dataset that holds the rejected rows.
    """

    dataset: str
    partition: str
    rows: int
    at_most: int
    into: str

    def __str__(self) -> str:
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        return f"{rows} rejected, of at most {self.at_most:,}: {self.dataset} {self.partition}, see {self.into}"


def rejected_rows(
    connection: psycopg.Connection, dataset: str | None = None, partition: str | None = None
) -> list[RejectedRows]:
    """The current partitions with rejected rows; of one landing dataset or all, of one partition or all."""
    parameters = {"dataset": dataset, "partition": partition}
    return [RejectedRows(*row) for row in connection.execute(_ROWS, parameters)]


@dataclass(frozen=True)
class RejectedArrivals:
    """The rejected arrivals in the catalog, over a connection in autocommit mode."""

    connection: psycopg.Connection

    def of(self, dataset: str) -> dict[str, Rejected]:
        """The rejected arrivals of a dataset, by uri."""
        return {row[0]: _rejected(row) for row in self.connection.execute(_OF, (dataset,))}

    def untaken(self, dataset: str) -> list[Rejected]:
        """The rejected arrivals of a dataset, in order; without files that only have to settle first."""
        return [each for _, each in sorted(self.of(dataset).items()) if each.kind is not RejectionKind.SETTLING]

    def all(self) -> list[tuple[str, Rejected]]:
        """(dataset, rejected arrival) of all datasets, in order; without files that only have to settle first."""
        return [each for each in self._all() if each[1].kind is not RejectionKind.SETTLING]

    def settling(self) -> list[tuple[str, Rejected]]:
        """(dataset, file) of all files that changed a moment ago, and are taken when they stay as they are."""
        return [each for each in self._all() if each[1].kind is RejectionKind.SETTLING]

    def _all(self) -> list[tuple[str, Rejected]]:
        return [(row[0], _rejected(row[1:])) for row in self.connection.execute(_ALL).fetchall()]

    def write(self, dataset: str, before: Mapping[str, Rejected], now: Mapping[str, Rejected]) -> None:
        """Write the differences between the rejected arrivals `before` and `now`, both by uri."""
        changed = [arrival for uri, arrival in now.items() if before.get(uri) != arrival]
        with self.connection.cursor() as cursor:
            cursor.executemany(
                _WRITE,
                [
                    (dataset, arrival.uri, arrival.kind.value, arrival.reason, arrival.since, arrival.seen_at,
                     arrival.partition, arrival.size, arrival.stamp,
                     None if arrival.changed_at is None else min(arrival.changed_at, _LATEST),
                     None if arrival.until is None else min(arrival.until, _LATEST), arrival.declared)
                    for arrival in changed
                ],
            )  # fmt: skip
        if gone := [uri for uri in before if uri not in now]:
            self.connection.execute(_GONE, (dataset, gone))

    def leave_out(self, sensor: str, left_out: Iterable[LeftOut]) -> None:
        """Record what the last tick of a sensor left out, in the place of what earlier ticks left out."""
        listed = list(left_out)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                _LEAVE_OUT,
                [
                    (sensor, item.dataset, item.kind, item.subject, list(item.partitions), item.reason)
                    for item in listed
                ],
            )
        columns = [[item.dataset for item in listed], [item.kind for item in listed], [item.subject for item in listed]]
        self.connection.execute(_NO_MORE, (sensor, *columns))

    def left_out(self) -> Sequence[LeftOut]:
        """What the last tick of each sensor left out."""
        return [
            LeftOut(dataset, kind, reason, subject, tuple(partitions), sensor, since.timestamp())
            for sensor, dataset, kind, subject, partitions, reason, since in self.connection.execute(_LEFT_OUT)
        ]


def _rejected(row: Sequence[Any]) -> Rejected:
    uri, kind, *rest = row
    return Rejected(uri, RejectionKind(kind), *rest)
