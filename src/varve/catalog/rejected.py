"""What arrived and is not taken, in files and in rows, and what a tick left out, in the catalog: states people see.

Not here: why something is not taken (varve/planning/arrivals/arrivals.py), and who looks
(varve/dagster/automation/sensors.py).
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
_ROWS = """
    select d.dataset, b.partition, b.rows, (d.declaration -> 'reject_into' ->> 0)::bigint, b.dataset
    from varve.dataset d
    join varve.current c on c.dataset = d.declaration -> 'reject_into' ->> 1
    join varve.batch b on (b.dataset, b.partition, b.batch_id) = (c.dataset, c.partition, c.batch_id)
    where b.rows > 0 and (%(dataset)s::text is null or d.dataset = %(dataset)s)
        and (%(partition)s::text is null or b.partition = %(partition)s)
    order by 1, 2
"""
# Years that PostgreSQL has; a file may say that it is of another.
_LATEST = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that a tick could not do.

    Attributes:
        kind: `look` (at what arrives), `plan` (judge the dataset) or `request` (ask for a run).
        subject: of a request its partitions, in words.
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
    """How many rows of a current partition of a landing dataset were rejected, of how many at most.

    Attributes:
        into: the dataset that holds them.
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
    """The current partitions with rejected rows: of a landing dataset (None: of all), and of a partition."""
    parameters = {"dataset": dataset, "partition": partition}
    return [RejectedRows(*row) for row in connection.execute(_ROWS, parameters)]


@dataclass(frozen=True)
class RejectedArrivals:
    """That part of the catalog, over a connection in autocommit mode."""

    connection: psycopg.Connection

    def of(self, dataset: str) -> dict[str, Rejected]:
        """What of a dataset is not taken, by uri."""
        return {row[0]: _rejected(row) for row in self.connection.execute(_OF, (dataset,))}

    def all(self) -> list[tuple[str, Rejected]]:
        """(dataset, what is not taken), in order; without what was written just now and is about to be taken."""
        rows = self.connection.execute(_ALL).fetchall()
        found = [(row[0], _rejected(row[1:])) for row in rows]
        return [(dataset, one) for dataset, one in found if one.kind is not RejectionKind.SETTLING]

    def write(self, dataset: str, before: Mapping[str, Rejected], now: Mapping[str, Rejected]) -> None:
        """Bring the catalog from what it was to what it is now."""
        changed = [one for uri, one in now.items() if before.get(uri) != one]
        with self.connection.cursor() as cursor:
            cursor.executemany(
                _WRITE,
                [
                    (dataset, one.uri, one.kind.value, one.reason, one.since, one.seen_at, one.partition, one.size,
                     one.stamp, None if one.changed_at is None else min(one.changed_at, _LATEST),
                     None if one.until is None else min(one.until, _LATEST), one.declared)
                    for one in changed
                ],
            )  # fmt: skip
        if gone := [uri for uri in before if uri not in now]:
            self.connection.execute(_GONE, (dataset, gone))

    def leave_out(self, sensor: str, found: Iterable[LeftOut]) -> None:
        """Remember what the last tick of a sensor left out, and nothing of the ticks before it."""
        listed = list(found)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                _LEAVE_OUT,
                [(sensor, one.dataset, one.kind, one.subject, list(one.partitions), one.reason) for one in listed],
            )
        columns = [[one.dataset for one in listed], [one.kind for one in listed], [one.subject for one in listed]]
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
