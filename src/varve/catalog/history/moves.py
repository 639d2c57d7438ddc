"""What publishes, rollbacks and promotions have moved, for people to look at.

Not here: changing what is current (varve/catalog/catalog.py), and taking a run back (history.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

# So many rows of publishes are grouped by their runs.
_ROWS = 200
_LATEST = """
    select run_id, array_agg(distinct kind), max(reason), max(published_at), array_agg(distinct dataset), min(id),
        exists (select from varve.plan where contents ->> 'environment' is not null and applied_at is not null
            and contents ->> 'run' = run_id)
    from (
        select * from varve.publish where %s::bigint is null or id < %s order by id desc limit %s
    ) p group by run_id order by max(id) desc
"""
_DATASETS = """
    select p.dataset, count(distinct c.partition), array_agg(distinct p.kind), max(p.reason), max(p.published_at)
    from varve.publish p join varve.published c using (dataset, build_id) where p.run_id = %s group by 1 order by 1
"""
# The batch before it, the one that it has made current, and the one that is current now, of the first partitions.
_PARTITIONS = """
    select r.dataset, r.partition, b.batch_id, r.last_batch_id, c.batch_id from (
        select p.dataset, c.partition, min(p.id) as id, (array_agg(c.batch_id order by p.id desc))[1] as last_batch_id
        from varve.publish p join varve.published c using (dataset, build_id) where p.run_id = %s
        group by 1, 2 order by 1, 2 limit %s
    ) r
    left join lateral (
        select p.batch_id from varve.publication p
        where (p.dataset, p.partition) = (r.dataset, r.partition) and p.id < r.id order by p.id desc limit 1
    ) b on true
    left join varve.current c on (c.dataset, c.partition) = (r.dataset, r.partition) order by 1, 2
"""


@dataclass(frozen=True)
class Moves:
    """What was made current when, over one connection; all as plain values."""

    connection: psycopg.Connection

    def latest(self, before: int | None) -> list[dict[str, Any]]:
        """The last runs and commands that have moved anything, the newest first; those before this id."""
        rows = self.connection.execute(_LATEST, (before, before, _ROWS))
        return [
            {
                "run": run, "kinds": ["promotion"] if promoted else sorted(kinds), "reason": reason,
                "at": f"{at:%Y-%m-%d %H:%M:%S} UTC", "datasets": sorted(datasets), "id": number,
            }
            for run, kinds, reason, at, datasets, number, promoted in rows
        ]  # fmt: skip

    def has_before(self, listed: Sequence[Mapping[str, Any]]) -> bool:
        """Whether there are earlier ones than these."""
        statement = "select exists (select from varve.publish where id < %s)"
        row = self.connection.execute(statement, (min((each["id"] for each in listed), default=0),)).fetchone()
        return row is not None and bool(row[0])

    def datasets_of(self, run_id: str) -> list[dict[str, Any]]:
        """The datasets of which a run has moved partitions, with their numbers."""
        return [
            {"dataset": dataset, "partitions": count, "kinds": sorted(kinds), "reason": reason,
             "at": f"{at:%Y-%m-%d %H:%M:%S} UTC"}
            for dataset, count, kinds, reason, at in self.connection.execute(_DATASETS, (run_id,))
        ]  # fmt: skip

    def partitions_of(self, run_id: str, limit: int) -> list[dict[str, Any]]:
        """The first of those partitions: their batches before it, by it, and now; None where there is none."""
        return [
            {"dataset": dataset, "partition": path, "before": before, "published": published, "current": now}
            for dataset, path, before, published, now in self.connection.execute(_PARTITIONS, (run_id, limit))
        ]
