"""The pointers at the metadata of Iceberg tables, as rows of the catalog's database; the SQL for them.

Not here: the views that engines read (varve/catalog/upgrade_18.sql), and the metadata itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    import psycopg

# The name of the catalog, by which engines must know it.
CATALOG = "varve"
SCHEMA = "varve_iceberg"
# Why a table is hidden that the next publish shows again by itself, if the dataset says so again.
TURNED_OFF = "the dataset has no Iceberg side any more"
# Who writes metadata shares the lock until its transaction ends; who deletes metadata has it alone.
_WRITING = """
    select pg_advisory_xact_lock_shared(hashtextextended('iceberg metadata of ' || dataset, 0))
    from unnest(%s::text[]) as dataset
"""
_DELETING = "select pg_advisory_xact_lock(hashtextextended('iceberg metadata of ' || %s, 0))"
_ENSURE = """
    insert into varve.iceberg_table (dataset, environment, namespace, table_name) values (%s, %s, %s, %s)
    on conflict do nothing
"""
_READ = """
    select metadata_location, written_location, hidden_because from varve.iceberg_table
    where dataset = %s and environment is not distinct from %s
"""
_LOCK = _READ + " for update"
_MOVE = """
    update varve.iceberg_table
    set previous_metadata_location = metadata_location, metadata_location = %s, written_location = %s,
        hidden_because = ''
    where dataset = %s and environment is not distinct from %s
"""
_HIDE = """
    update varve.iceberg_table set metadata_location = null, previous_metadata_location = null, hidden_because = %s
    where dataset = %s and environment is not distinct from %s
"""
_NOTE = """
    insert into varve.iceberg_snapshot (dataset, environment, snapshot_id, build_id, metadata_location, at)
    values (%s, %s, %s, %s, %s, %s)
    on conflict (dataset, snapshot_id) do update set metadata_location = excluded.metadata_location
"""
# A repair's snapshot is what is current since that publish; tags and environments that ask for it get this one.
_NOTE_LAST_PUBLISH = """
    with last as (
        select p.dataset, p.build_id from varve.publish p where p.dataset = %(dataset)s order by p.id desc limit 1
    )
    update varve.iceberg_snapshot s
    set build_id = case when s.snapshot_id = %(snapshot)s then last.build_id end
    from last where s.dataset = last.dataset and s.environment is null
      and (s.snapshot_id = %(snapshot)s or s.build_id = last.build_id)
"""
_PUBLISHED_AT = "select published_at from varve.publish where dataset = %s and build_id = %s"
_AT_BASE = """
    select s.metadata_location from varve.environment e
    left join lateral (
        select i.metadata_location from (
            select p.build_id from varve.publish p where p.dataset = %(dataset)s and p.id <= e.base
            order by p.id desc limit 1
        ) l join varve.iceberg_snapshot i
            on (i.dataset, i.build_id) = (%(dataset)s, l.build_id) and i.environment is null
    ) s on true
    where e.name = %(environment)s and e.base is not null
    union all
    select t.metadata_location from varve.environment e, varve.iceberg_table t
    where e.name = %(environment)s and e.base is null and t.dataset = %(dataset)s and t.environment is null
"""
_ROOTS = """
    select metadata_location from varve.iceberg_table where dataset = %(dataset)s and metadata_location is not null
    union select written_location from varve.iceberg_table where dataset = %(dataset)s and written_location is not null
    union select metadata_location from varve.iceberg_snapshot where dataset = %(dataset)s
"""
_SHOWN = "select written_location from varve.iceberg_table where dataset = %s and written_location is not null"
_NOTED = "select snapshot_id, metadata_location from varve.iceberg_snapshot where dataset = %s"
_REWRITE = """
    update varve.iceberg_table
    set previous_metadata_location = null, written_location = %s,
        metadata_location = case when metadata_location is null then null else %s end
    where dataset = %s and environment is not distinct from %s
"""
_REWRITE_NOTE = """
    update varve.iceberg_snapshot set metadata_location = %s where dataset = %s and metadata_location = %s
"""
_LIVE = """
    select t.environment from varve.iceberg_table t join varve.environment e on e.name = t.environment
    where t.dataset = %s and e.base is null order by 1
"""
_SNAPSHOT_OF = """
    select snapshot_id from varve.iceberg_snapshot where dataset = %s and environment is null and build_id = %s
"""
_OWNERS = "select environment from varve.iceberg_table where dataset = %s order by environment nulls first"
# Not the one of the last publish, on which an environment stands that is made next, nor those on which others stand.
_FORGET_SNAPSHOTS = """
    delete from varve.iceberg_snapshot s
    where s.dataset = %(dataset)s and not s.snapshot_id = any(%(kept)s::bigint[])
      and (%(everywhere)s or s.environment is not distinct from %(environment)s)
      and not exists (
        select from varve.publish p
        where (p.dataset, p.build_id) = (s.dataset, s.build_id) and s.environment is null and (
            not exists (select from varve.publish n where n.dataset = p.dataset and n.id > p.id)
            or exists (
                select from varve.environment e where p.id <= e.base and not exists (
                    select from varve.publish n where n.dataset = p.dataset and n.id > p.id and n.id <= e.base))))
"""
_TURN_OFF = """
    update varve.iceberg_table
    set metadata_location = null, previous_metadata_location = null, hidden_because = %s
    where dataset = any(%s) and environment is not distinct from %s
      and (metadata_location is not null or hidden_because = '')
"""
_DROP = "delete from varve.iceberg_table where dataset = %s"
_DROP_SNAPSHOTS = "delete from varve.iceberg_snapshot where dataset = %s"
_DATASETS = """
    select dataset from varve.iceberg_table where environment is not distinct from %s and metadata_location is not null
    order by 1
"""
_TABLES = """
    select table_namespace, table_name, metadata_location from varve_iceberg.iceberg_tables
    where %(environment)s::text is null and table_namespace not in (
            select t.namespace || '__' || e.name from varve.iceberg_table t, varve.environment e
            where t.environment is null
            union all select namespace from varve.iceberg_table where environment is not null)
       or table_namespace in (
            select namespace || '__' || %(environment)s from varve.iceberg_table where environment is null
            union all select namespace from varve.iceberg_table where environment = %(environment)s)
    order by 1, 2
"""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a table's metadata is.

    Attributes:
        location: what engines are shown; None where nothing is.
        written: what Varve has written last; another `location` is somebody else's.
        hidden_because: why nothing is shown.
    """

    location: str | None
    written: str | None
    hidden_because: str = ""


@dataclass(frozen=True)
class Pointers:
    """The pointers of an environment's tables, or of production's where it is None."""

    connection: psycopg.Connection
    environment: str | None = None

    def of(self, dataset: str) -> Pointer | None:
        """The pointer of a dataset's table; None where it has none."""
        row = self.connection.execute(_READ, (dataset, self.environment)).fetchone()
        return None if row is None else Pointer(*row)

    def announce(self, datasets: list[str]) -> None:
        """In a transaction: nobody deletes metadata of these datasets from now on."""
        self.connection.execute(_WRITING, (datasets,))

    def lock(self, dataset: str) -> Pointer:
        """In a transaction: the pointer of a dataset's table, made where there is none, which nobody else moves now."""
        self.announce([dataset])
        row = self.connection.execute(_LOCK, (dataset, self.environment)).fetchone()
        if row is None:
            self._ensure(dataset)
            row = self.connection.execute(_LOCK, (dataset, self.environment)).fetchone()
        assert row is not None, "the row was made, and nobody drops the dataset while it is published"
        return Pointer(*row)

    def _ensure(self, dataset: str) -> None:
        namespace, _, table = dataset.partition(".")
        namespace = namespace if self.environment is None else f"{namespace}__{self.environment}"
        self.connection.execute(_ENSURE, (dataset, self.environment, namespace, table))

    def lock_against_writers(self, dataset: str) -> None:
        """In a transaction: wait until nobody writes metadata of the dataset anywhere; nobody begins then."""
        self.connection.execute(_DELETING, (dataset,))

    def move(self, dataset: str, location: str) -> None:
        """Show this metadata."""
        self.connection.execute(_MOVE, (location, location, dataset, self.environment))

    def hide(self, dataset: str, reason: str) -> None:
        """Show no metadata any more."""
        self.connection.execute(_HIDE, (reason, dataset, self.environment))

    def turn_off(self, datasets: list[str]) -> None:
        """Show none of these tables any more, because their datasets, or the settings, say so.

        Without a row, an environment would be shown what is current at its base.
        """
        for dataset in () if self.environment is None else datasets:
            self._ensure(dataset)
        self.connection.execute(_TURN_OFF, (TURNED_OFF, datasets, self.environment))

    def note(self, dataset: str, snapshot_id: int, build_id: int | None, location: str, at: dt.datetime) -> None:
        """Record which metadata a snapshot has come with."""
        self.connection.execute(_NOTE, (dataset, self.environment, snapshot_id, build_id, location, at))

    def note_last_publish(self, dataset: str, snapshot_id: int) -> None:
        """Record that a snapshot of production's table shows what is current since the last publish."""
        self.connection.execute(_NOTE_LAST_PUBLISH, {"dataset": dataset, "snapshot": snapshot_id})

    def published_at(self, dataset: str, build_id: int) -> dt.datetime | None:
        """When a build was published; None for one of an environment, whose publishes are not recorded."""
        row = self.connection.execute(_PUBLISHED_AT, (dataset, build_id)).fetchone()
        return None if row is None or self.environment is not None else row[0]

    def at_base(self, dataset: str) -> str | None:
        """The metadata on which the environment's table stands; None where there is none."""
        if self.environment is None:
            return None
        row = self.connection.execute(_AT_BASE, {"dataset": dataset, "environment": self.environment}).fetchone()
        return None if row is None else row[0]

    def roots(self, dataset: str) -> list[str]:
        """Every metadata document of a dataset that somebody may still open, in every environment."""
        return [location for (location,) in self.connection.execute(_ROOTS, {"dataset": dataset})]

    def owners(self, dataset: str) -> list[str | None]:
        """The environments that have a table of their own of the dataset; None is production."""
        return [environment for (environment,) in self.connection.execute(_OWNERS, (dataset,))]

    def shown(self, dataset: str) -> list[str]:
        """The metadata that Varve has written last for the tables of a dataset, in every environment."""
        return [location for (location,) in self.connection.execute(_SHOWN, (dataset,))]

    def noted(self, dataset: str) -> list[tuple[int, str]]:
        """Snapshots and the metadata with which they came."""
        return self.connection.execute(_NOTED, (dataset,)).fetchall()

    def rewrite(self, dataset: str, location: str) -> None:
        """Show other metadata of the same rows."""
        pointer = self.of(dataset)
        self.connection.execute(_REWRITE, (location, location, dataset, self.environment))
        if pointer is not None and pointer.written is not None:
            self.connection.execute(_REWRITE_NOTE, (location, dataset, pointer.written))

    def live_environments(self, dataset: str) -> list[str]:
        """The environments that follow production and have a table of their own of the dataset."""
        return [environment for (environment,) in self.connection.execute(_LIVE, (dataset,))]

    def snapshot_of(self, dataset: str, build_id: int) -> int | None:
        """The snapshot with which a build was published; None where nobody knows it any more."""
        row = self.connection.execute(_SNAPSHOT_OF, (dataset, build_id)).fetchone()
        return None if row is None else row[0]

    def forget_snapshots(self, dataset: str, kept: list[int], *, everywhere: bool = False) -> None:
        """Forget the metadata of all snapshots but these, also of other environments' tables where it is `everywhere`.

        That on which an environment stands, or would if it were made now, is kept.
        """
        parameters = {"dataset": dataset, "kept": kept, "everywhere": everywhere, "environment": self.environment}
        self.connection.execute(_FORGET_SNAPSHOTS, parameters)

    def drop(self, dataset: str) -> None:
        """Forget the tables of a dataset, in every environment."""
        self.connection.execute(_DROP, (dataset,))
        self.connection.execute(_DROP_SNAPSHOTS, (dataset,))

    def datasets(self) -> list[str]:
        """The datasets that are shown, by name."""
        return [dataset for (dataset,) in self.connection.execute(_DATASETS, (self.environment,))]

    def all(self) -> list[tuple[str, str, str]]:
        """(namespace, table, metadata location) of every table that is shown, from one statement."""
        return self.connection.execute(_TABLES, {"environment": self.environment}).fetchall()
