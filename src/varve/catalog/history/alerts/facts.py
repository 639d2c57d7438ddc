"""The facts in the catalog from which conditions follow.

Not here: what follows from them (varve/planning/operations/conditions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import counted
from varve.planning.operations.conditions import FailedExpectation, ProjectionFacts
from varve.planning.operations.freshness import FreshnessFacts, expected_partitions, newer_partitions

if TYPE_CHECKING:
    import psycopg

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members

_PRESENT = "select partition from varve.current where dataset = %s and partition = any(%s)"
_OTHERS = "select exists (select from varve.current where dataset = %s and not partition = any(%s))"
# A retirement is recorded as a publish that makes no batch current: nothing came with it.
_PUBLISHED = """
    select extract(epoch from max(published_at))::float8 from varve.publication
    where dataset = %s and kind = 'publish' and batch_id is not null
"""
# The newest build that has ended of each partition, where its rows broke an expectation.
_EXPECTATIONS = """
    select b.dataset, b.partition, b.failure from varve.batch b
    where b.broken is not null and b.state = 'failed' and b.environment = '' and not exists (
        select from varve.batch n where (n.dataset, n.partition) = (b.dataset, b.partition) and n.environment = ''
            and n.batch_id > b.batch_id and n.state not in ('building', 'staged'))
    order by 1, 2
"""
_OUTAGES = """
    select distinct on (dataset) dataset, failure from varve.batch
    where state = 'failed' and outage and environment = '' and failure is not null order by dataset, batch_id desc
"""
# A partition lags since the first publication after the one that the Hive table shows; where it shows nothing, since
# the first after it was withdrawn. Which one it shows is not known of a partition without a batch, nor while it is
# moved (0, -1): then it is the last.
_HIVE = """
    with lagging as (
        select dataset, partition, projected_batch_id as shown from varve.current
        where projected_batch_id is distinct from batch_id
        union all
        select w.dataset, w.partition, 0 from varve.withdrawn w left join varve.current c using (dataset, partition)
        where c.batch_id is null
    )
    select l.dataset, count(*), extract(epoch from coalesce(
        min(s.since), (select max(p.published_at) from varve.publish p where p.dataset = l.dataset)))::float8
    from lagging l
    cross join lateral (
        select max(build_id) as last, max(build_id) filter (where batch_id is null) as withdrawn,
            max(build_id) filter (where batch_id = l.shown) as shown
        from varve.published where (dataset, partition) = (l.dataset, l.partition)
    ) b
    cross join lateral (
        select min(published_at) as since from varve.publication
        where (dataset, partition) = (l.dataset, l.partition) and build_id > case
            when l.shown is null then coalesce(b.withdrawn, 0) else coalesce(b.shown, b.last - 1) end
    ) s
    group by l.dataset order by l.dataset
"""
_ICEBERG = """
    select dataset, hidden_because from varve.iceberg_table
    where environment is null and (
        (hidden_because <> '' and hidden_because <> %s) or
        (metadata_location is not null and metadata_location is distinct from written_location)) order by 1
"""
_VIEWS_THAT_ARE_GONE = """
    select d.dataset from varve.dataset d
    where d.store = 'warehouse' and exists (select from varve.current c where c.dataset = d.dataset)
      and to_regclass(format('%I.%I', split_part(d.dataset, '.', 1), split_part(d.dataset, '.', 2))) is null
    order by 1
"""
# As varve/stores/lake/iceberg/pointers.py notes it, where a dataset is meant to have no Iceberg table.
_TURNED_OFF = "the dataset has no Iceberg side any more"


@dataclass(frozen=True)
class AlertCatalog:
    """What conditions need of the catalog, over a connection in autocommit mode."""

    connection: psycopg.Connection

    def freshness(self, dataset: Dataset, members: Members | None, now: float) -> FreshnessFacts:
        """Which of the partitions are there that should be at `now`, in seconds since 1970."""
        expected = [path for paths in expected_partitions(dataset, members, now).values() for path in paths]
        if dataset.partitioning.time is None:
            row = self.connection.execute(_PUBLISHED, (dataset.name,)).fetchone()
            return FreshnessFacts(published=row[0] if row else None)
        existing = {path for (path,) in self.connection.execute(_PRESENT, (dataset.name, expected))}
        known = [*expected, *newer_partitions(dataset, members, now)]
        row = self.connection.execute(_OTHERS, (dataset.name, known)).fetchone()
        return FreshnessFacts(existing, others=row is not None and bool(row[0]))

    def failed_expectations(self) -> list[FailedExpectation]:
        """The partitions whose newest build has failed by an expectation."""
        return [FailedExpectation(*row) for row in self.connection.execute(_EXPECTATIONS)]

    def outages(self) -> dict[str, str]:
        """By dataset, what the last run met that could not reach a service."""
        return dict(self.connection.execute(_OUTAGES).fetchall())

    def projections(self) -> list[ProjectionFacts]:
        """The Hive tables, Iceberg tables and views that do not show what is current."""
        hive = [
            ProjectionFacts(
                dataset, "Hive table",
                f"it lags by {counted(count, 'partition')}; the sensor projections or varve repair mends that",
                since,
            )
            for dataset, count, since in self.connection.execute(_HIVE)
        ]  # fmt: skip
        iceberg = [
            ProjectionFacts(
                dataset, "Iceberg table",
                f"it is hidden: {hidden}" if hidden else "somebody else has moved it; varve repair takes it back",
                None,
            )
            for dataset, hidden in self.connection.execute(_ICEBERG, (_TURNED_OFF,))
        ]  # fmt: skip
        views = [
            ProjectionFacts(
                dataset, "view",
                f"somebody has dropped it, and readers have nothing; varve doctor {dataset} names what makes it again",
                None,
            )
            for (dataset,) in self.connection.execute(_VIEWS_THAT_ARE_GONE)
        ]  # fmt: skip
        return [*hive, *iceberg, *views]
