"""The environments in a catalog: a name, a base, the code, and an overlay of pointers to batches.

Creating one writes one row and copies nothing, because batches are never changed. No sweep takes a batch that an
environment needs, as long as that lives.

Not here: builds within one (overlay.py), what is due in one (facts.py), and promoting one
(varve/stores/environments/promoter.py).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from varve.model.batch import BatchId
from varve.model.errors import BadInput, VarveError, nearest, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.planning.graph import Graph

# A name is part of the names of schemas and databases, and of paths.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
WEEK = dt.timedelta(days=7)

# A publish that is not committed yet has an id already. It has locked the table to write its row, and is waited for.
_LOCK_PUBLISHES = "lock table varve.publish in share mode"
_LAST_PUBLISH = "select coalesce(max(id), 0) from varve.publish"
_CREATE = "insert into varve.environment (name, base, created_by, ttl) values (%s, %s, %s, %s)"
# Where a run computes in it, it is used, however long that takes; a sweep has failed before what dead runs have left.
_LIST = """
    select e.name, e.base, p.published_at, e.created_by, e.created_at, e.used_at, e.ttl,
        coalesce(o.partitions, 0), coalesce(o.datasets, 0), coalesce(o.bytes, 0)::bigint,
        e.ttl is not null and e.used_at + e.ttl <= clock_timestamp() and not exists (
            select from varve.batch b where b.environment = e.name and b.state in ('building', 'staged'))
    from varve.environment e
    left join varve.publish p on p.id = e.base
    left join (
        select o.environment, count(*) as partitions, count(distinct o.dataset) as datasets, sum(b.bytes) filter (
            where b.state = 'retired' and b.published_at is null and not exists (
                select from varve.overlay x
                where (x.dataset, x.partition, x.batch_id) = (o.dataset, o.partition, o.batch_id)
                    and x.environment <> o.environment)) as bytes
        from varve.overlay o left join varve.batch b using (dataset, partition, batch_id) group by 1
    ) o on o.environment = e.name
    where %s::text is null or e.name = %s order by e.name
"""
_BASE = "select base from varve.environment where name = %s"
_DROP = "delete from varve.environment where name = %s"
_DROP_EXPIRED = (
    _DROP
    + """
    and used_at + ttl <= clock_timestamp() and not exists (
        select from varve.batch b where b.environment = varve.environment.name and b.state in ('building', 'staged'))
"""
)
_USE = "update varve.environment set used_at = clock_timestamp() where name = %s"
_REBASE = "update varve.environment set base = %s, used_at = clock_timestamp() where name = %s"
# What has no overlay any more is shown as at the base; the next publish of the environment shows the others again.
_FORGET_TABLES = """
    delete from varve.iceberg_table t where t.environment = %s
      and not exists (select from varve.overlay o where (o.environment, o.dataset) = (t.environment, t.dataset))
"""
_HIDE_TABLES = """
    update varve.iceberg_table set metadata_location = null, previous_metadata_location = null, written_location = null
    where environment = %s
"""
_CODE = "select dataset, code_version, base_code from varve.environment_code where environment = %s"
_SET_CODE = """
    insert into varve.environment_code (environment, dataset, code_version, base_code, source)
    select %s, dataset, code_version, '', source
    from unnest(%s::text[], %s::text[], %s::text[]) as given (dataset, code_version, source)
    on conflict (environment, dataset) do update set code_version = excluded.code_version, source = excluded.source
"""
_VIEWS = """
    select database_name, table_name, store from varve.environment_view where environment = %s order by 3, 1, 2
"""
_VIEWS_OF_OTHERS = """
    select environment, database_name, table_name from varve.environment_view
    where environment <> %s and (database_name, table_name, store)
        in (select * from unnest(%s::text[], %s::text[], %s::text[])) order by 1, 2, 3
"""
_NOTE_VIEW = "insert into varve.environment_view values (%s, %s, %s, %s) on conflict do nothing"
_FORGET_VIEWS = "delete from varve.environment_view where environment = %s"
# Whatever is deployed later is not contained in the environment's code, until somebody says so.
_ADD_DEPLOYED_CODE = """
    insert into varve.environment_code (environment, dataset, code_version, base_code, source)
    select %s, dataset, code_version, code_version, '' from varve.deployed
"""
_ADOPT = """
    update varve.environment_code c set base_code = d.code_version from varve.deployed d
    where c.environment = %s and d.dataset = c.dataset and d.code_version = c.code_version
"""
_SET_BASE_CODE = """
    update varve.environment_code c set base_code = coalesce(
        (select d.code_version from varve.deployed d where d.dataset = c.dataset), '')
    where environment = %s
"""
_OVERLAY = """
    select o.dataset, o.partition, o.batch_id, c.batch_id, b.rows, b.bytes, b.environment, b.content is not null
        and b.content = p.content, coalesce(b.generation, 0), coalesce(d.generation, 0)
    from varve.overlay o left join varve.dataset d using (dataset)
    left join varve.current c using (dataset, partition)
    left join varve.batch b on (b.dataset, b.partition, b.batch_id) = (o.dataset, o.partition, o.batch_id)
    left join varve.batch p on (p.dataset, p.partition, p.batch_id) = (c.dataset, c.partition, c.batch_id)
    where o.environment = %s order by o.dataset, o.partition
"""
_FORGET_OVERLAY = """
    delete from varve.overlay o using unnest(%b::text[]) as t (partition)
    where o.environment = %s and o.dataset = %s and o.partition = t.partition
"""
_FORGET_PROMOTED = """
    delete from varve.overlay o using unnest(%b::text[], %b::bigint[]) as t (partition, batch_id)
    where o.environment = %s and o.dataset = %s and (o.partition, o.batch_id) = (t.partition, t.batch_id)
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment.

    Attributes:
        base: the number of the last publish of production that it reads; None: it reads whatever is current.
        base_at: when that publish was.
        partitions, datasets: how many its overlay has.
        size: the bytes of data that nobody else needs.
        expired: whether the next sweep forgets it.
    """

    name: str
    base: int | None
    base_at: dt.datetime | None
    created_by: str
    created_at: dt.datetime
    used_at: dt.datetime
    ttl: dt.timedelta | None
    partitions: int
    datasets: int
    size: int
    expired: bool


@dataclass(frozen=True, slots=True)
class EnvironmentCode:
    """The code of a dataset in an environment, and the one that was deployed when its base was chosen ("": none)."""

    version: str
    base: str


@dataclass(frozen=True, slots=True)
class OverlayBatch:
    """A partition of an overlay.

    Attributes:
        batch_id: None: the partition has none in the environment.
        current: the batch that is current in production; None where there is none.
        environment: where it was computed; "" for a batch of production.
        same_content: whether both are known to hold the same rows.
        generation, shown: the generation of the batch, and the one that readers of production see.
    """

    dataset: str
    partition: str
    batch_id: BatchId | None
    current: BatchId | None
    rows: int | None
    size: int | None
    environment: str
    same_content: bool
    generation: int
    shown: int


@dataclass(frozen=True)
class Environments:
    """The environments in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def create(self, name: str, *, by: str, live: bool = False, ttl: dt.timedelta | None = WEEK) -> Environment:
        """Make an environment over what is current now.

        Args:
            name: small letters, digits and underscores, a letter first, 31 at most.
            by: who makes it.
            live: whether it follows production instead; such an environment is for watching, and is never promoted.
            ttl: so long after its last use it may be forgotten; None: never.

        Raises BadInput for another name, or one that is taken.
        """
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} cannot be the name of an environment: it becomes part of names of schemas. Use small "
                "letters, digits and underscores, a letter first, 31 at most. Nothing was made."
            )
        try:
            with self.connection.transaction():
                base = None if live else self._last_publish()
                self.connection.execute(_CREATE, (name, base, by, ttl))
                self.connection.execute(_ADD_DEPLOYED_CODE, (name,))
        except psycopg.errors.UniqueViolation:
            existing = self.get(name)
            raise BadInput(
                f"there is an environment {name} already, of {existing.created_by} since "
                f"{existing.created_at:%Y-%m-%d %H:%M} UTC. Nothing was made. Choose another name, or end that one: "
                f"varve env drop {name}."
            ) from None
        return self.get(name)

    def all(self) -> list[Environment]:
        """Every environment, by name."""
        return [Environment(*row) for row in self.connection.execute(_LIST, (None, None))]

    def get(self, name: str) -> Environment:
        """The environment of that name. Raises VarveError where there is none."""
        rows = self.connection.execute(_LIST, (name, name)).fetchall()
        if not rows:
            names = [environment.name for environment in self.all()]
            raise VarveError(
                f"there is no environment {name!r}.{nearest(name, names)} There are {some(names) or 'none'}. "
                f"`varve env create {name}` makes one."
            )
        return Environment(*rows[0])

    def base(self, name: str) -> int | None:
        """The number of the publish on which an environment stands; None where it follows production.

        Raises VarveError where there is no such environment.
        """
        row = self.connection.execute(_BASE, (name,)).fetchone()
        return self.get(name).base if row is None else row[0]

    def drop(self, name: str) -> Environment:
        """Forget an environment. What nobody else needs of its data goes with a later sweep. Raises VarveError."""
        environment = self.get(name)
        self.connection.execute(_DROP, (name,))
        return environment

    def drop_expired(self, name: str) -> bool:
        """Forget an environment if nobody has used it for its time, also not until this moment; returns whether."""
        return self.connection.execute(_DROP_EXPIRED, (name,)).rowcount > 0

    def views(self, name: str) -> list[tuple[str, str, str]]:
        """(database, table, store) of everything that shows an environment by SQL."""
        return list(self.connection.execute(_VIEWS, (name,)).fetchall())

    def views_of_others(self, name: str, views: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """(environment, database, table) of those of the views, as `views` gives them, that show another one."""
        databases, tables, stores = ([*column] for column in zip(*views, strict=True)) if views else ([], [], [])
        return self.connection.execute(_VIEWS_OF_OTHERS, (name, databases, tables, stores)).fetchall()

    def note_view(self, name: str, database: str, table: str, store: str) -> None:
        """Note that a table or view is about to show an environment; until that is forgotten, it cannot be dropped."""
        self.connection.execute(_NOTE_VIEW, (name, database, table, store))

    def forget_views(self, name: str) -> None:
        """Forget the tables and views of an environment, which are not there any more."""
        self.connection.execute(_FORGET_VIEWS, (name,))

    def use(self, name: str) -> None:
        """Note that an environment is used now, so that it does not expire. Raises VarveError where it is gone."""
        if not self.connection.execute(_USE, (name,)).rowcount:
            self.get(name)

    def rebase(self, name: str, *, code_too: bool) -> Environment:
        """Move the base to what is current now.

        With `code_too`, what is deployed now counts as contained in the environment's code from then on. Raises
        VarveError where there is no such environment, or where it has no base.
        """
        if self.base(name) is None:
            raise VarveError(f"environment {name} follows production already: it was made with --live.")
        with self.connection.transaction():
            self.connection.execute(_REBASE, (self._last_publish(), name))
            self.connection.execute(_FORGET_TABLES, (name,))
            self.connection.execute(_HIDE_TABLES, (name,))
            if code_too:
                self.connection.execute(_SET_BASE_CODE, (name,))
        return self.get(name)

    def adopt(self, name: str) -> None:
        """Count code that is both the environment's and deployed as its base, from now on: it was promoted."""
        self.connection.execute(_ADOPT, (name,))

    def code(self, name: str) -> dict[str, EnvironmentCode]:
        """The code of an environment, by dataset: before its first run what was deployed when it was made."""
        rows = self.connection.execute(_CODE, (name,))
        return {dataset: EnvironmentCode(version, base) for dataset, version, base in rows}

    def set_code(self, name: str, graph: Graph) -> None:
        """Note that the environment computes with the code of this graph from now on."""
        names = [dataset for dataset, version in graph.code_versions.items() if version]
        versions = [graph.code_versions[dataset] for dataset in names]
        sources = [graph.sources.get(dataset, "") for dataset in names]
        self.connection.execute(_SET_CODE, (name, names, versions, sources))

    def overlay(self, name: str) -> list[OverlayBatch]:
        """What the environment has instead of its base, by dataset and partition."""
        rows = self.connection.execute(_OVERLAY, (name,))
        return [
            OverlayBatch(dataset, path, _id(batch), _id(current), *rest)
            for dataset, path, batch, current, *rest in rows
        ]

    def forget_overlay(self, name: str, partitions: Mapping[str, Sequence[str]]) -> None:
        """Take partitions out of the overlay, by dataset: what the base has counts again."""
        for dataset, paths in partitions.items():
            self.connection.execute(_FORGET_OVERLAY, (list(paths), name, dataset))

    def forget_promoted(self, name: str, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Take promoted batches out of the overlay; what was computed or landed there since stays in it."""
        for dataset, by_partition in batches.items():
            ids = [batch_id.millis for batch_id in by_partition.values()]
            self.connection.execute(_FORGET_PROMOTED, (list(by_partition), ids, name, dataset))

    def _last_publish(self) -> int:
        self.connection.execute(_LOCK_PUBLISHES)
        row = self.connection.execute(_LAST_PUBLISH).fetchone()
        assert row is not None
        return int(row[0])


def _id(millis: int | None) -> BatchId | None:
    return None if millis is None else BatchId(millis)
