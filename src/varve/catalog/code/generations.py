"""The generations of each dataset: which one readers see, and in which one an environment builds.

A new generation is built in an environment, where the dataset begins without batches. A promotion moves readers to it:
all that is current of the old generation is retired in the transaction that makes the new batches current.

Not here: which declarations begin a new generation (varve/planning/changes/generation.py), and the promotion
(varve/stores/environments).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from varve.catalog.rows import columns_of, full_declaration
from varve.catalog.statements import NEXT_BATCH_ID
from varve.model.batch import BatchId
from varve.model.dataset import Dataset
from varve.model.errors import NOTHING_LOST, BadInput, CodeNotDeployed, VarveError
from varve.model.partitions.dimension import DynamicDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import ColumnType, Schema
from varve.planning.changes.generation import EnvironmentGeneration, Shape, begins_generation, breaks, misread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import psycopg

    from varve.model.batch import Batch
    from varve.model.build import Build
    from varve.planning.graph import Graph

_PUBLISHED = """
    select d.dataset, d.generation, d.store, d.declaration from varve.dataset d
    where (%s::text[] is null or d.dataset = any(%s))
      and exists (select from varve.publish p where p.dataset = d.dataset)
"""
# One batch of each generation, with the last declaration of that.
_GENERATIONS_OF = """
    select distinct on (b.generation) b.partition, b.batch_id,
        case when b.generation = d.generation then d.store else g.store end,
        case when b.generation = d.generation then d.declaration else g.declaration end
    from varve.batch b join varve.dataset d on d.dataset = b.dataset and d.dataset = %s
    join unnest(%s::text[], %s::bigint[]) as t (partition, batch_id) using (partition, batch_id)
    left join varve.generation g on (g.dataset, g.number) = (b.dataset, b.generation)
    where b.generation = d.generation or g.dataset is not null order by b.generation, b.partition
"""
_ELSEWHERE = """
    select d.dataset from varve.dataset d join unnest(%s::text[], %s::text[]) as t (dataset, store) using (dataset)
    where d.store <> t.store
"""
_STORES = "select distinct store from varve.generation"
# How many partitions each has kept that this code has made: a generation that was begun and given up has none.
_ALL = """
    select g.number, g.store, g.declaration, (
        select count(distinct b.partition) from varve.batch b
        where (b.dataset, b.generation) = (g.dataset, g.number) and b.code_version = %(code)s
          and b.state in ('published', 'retired') and b.swept_at is null)
    from varve.generation g where g.dataset = %(dataset)s order by g.number desc
"""
_KNOWN = "select store, declaration from varve.generation where (dataset, number) = (%s, %s)"
_BEGIN = "insert into varve.generation (dataset, number, store, declaration) values (%s, %s, %s, %s)"
_ENTERED = "select dataset, generation from varve.environment_generation where environment = %s"
_ENTER = """
    insert into varve.environment_generation (environment, dataset, generation, declaration) values (%s, %s, %s, %s)
    on conflict (environment, dataset) do update
    set generation = excluded.generation, declaration = excluded.declaration
"""
_OF_ENVIRONMENT = """
    select g.dataset, g.generation, d.generation, d.store, g.declaration
    from varve.environment_generation g join varve.dataset d using (dataset) where g.environment = %s
"""
# The last declaration of the generation that readers leave.
_KEEP_DECLARATION = """
    insert into varve.generation (dataset, number, store, declaration)
    select dataset, generation, store, declaration from varve.dataset where dataset = %s
    on conflict (dataset, number) do update set declaration = excluded.declaration
"""
# A dataset that goes back to a store is shown there again.
_MOVE = """
    with shown as (
        update varve.generation g set is_shown = o.store <> n.store and g.number = o.number
        from varve.dataset d join varve.generation o on (o.dataset, o.number) = (d.dataset, d.generation)
        join varve.generation n on n.dataset = d.dataset and n.number = %(number)s
        where d.dataset = %(dataset)s and g.dataset = d.dataset and (g.is_shown or g.number = o.number)
            and (g.store = n.store or g.number = o.number)
    )
    update varve.dataset set generation = %(number)s where dataset = %(dataset)s
"""
_DECLARE_AGAIN = """
    update varve.dataset d set store = g.store, declaration = g.declaration, updated_at = now()
    from varve.generation g where d.dataset = %s and (g.dataset, g.number) = (d.dataset, d.generation)
"""
_MADE = """
    select b.generation, b.code_version from varve.batch b
    join unnest(%s::text[], %s::bigint[]) as t (partition, batch_id) using (partition, batch_id)
    where b.dataset = %s order by b.batch_id desc limit 1
"""
_LEFT = "select store from varve.generation where is_shown and dataset = %s"
_ALL_LEFT = "select dataset, store from varve.generation where is_shown order by dataset"
_HIDDEN = "update varve.generation set is_shown = false where dataset = %s"
_OTHERS = "select partition from varve.current where dataset = %s and not partition = any(%s)"
_RETIRE = """
    update varve.batch b set state = 'retired', retired_at = p.published_at
    from varve.current c, varve.publish p
    where c.dataset = %(dataset)s and c.partition = any(%(paths)s) and p.dataset = c.dataset and p.build_id = %(build)s
      and (b.dataset, b.partition, b.batch_id) = (c.dataset, c.partition, c.batch_id)
"""
_WITHDRAW = """
    with gone as (
        delete from varve.current where dataset = %(dataset)s and partition = any(%(paths)s)
        returning dataset, partition
    ), shown as (
        insert into varve.withdrawn (dataset, partition) select dataset, partition from gone on conflict do nothing
    )
    insert into varve.published (dataset, partition, build_id, batch_id)
    select dataset, partition, %(build)s, null from gone
"""
# Publishers take a lock of this table when they compare what is current with what they expect: from here on they wait.
_LOCK_CURRENT = "lock table varve.current in exclusive mode"
# Environments publish into their overlays, which are not recorded there.
_WAS_SHOWN = """
    select exists (
        select from varve.batch b join varve.published p on (p.dataset, p.partition, p.batch_id)
            = (b.dataset, b.partition, b.batch_id)
        where b.dataset = %s and b.generation = %s)
"""
# All batches of a build are of one generation.
_LEFT_BEHIND = """
    select from varve.batch b join varve.dataset d using (dataset)
    where b.dataset = %s and b.partition = any(%s) and b.batch_id = %s and b.generation <> d.generation
"""
# What people and sensors have noted of partitions that are none any more.
_FORGET_NOTES = (
    "delete from varve.hold where dataset = %(dataset)s and partition = any(%(paths)s)",
    "delete from varve.dirty where dataset = %(dataset)s and partition = any(%(paths)s)",
    "delete from varve.acceptance where source = %(dataset)s and source_partition = any(%(paths)s) and version is null",
)


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A dataset as it was published last."""

    generation: int
    store: str
    declaration: Mapping[str, Any]

    @property
    def shape(self) -> Shape:
        """What decides whether another declaration fits to its batches."""
        return Shape(self.store, columns_of(self.declaration))


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """The generation of a batch, and the code that made it."""

    generation: int
    code_version: str


@dataclass(frozen=True)
class Generations:
    """The generations in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def published(self, names: Collection[str] | None = None) -> dict[str, PublishedDataset]:
        """The datasets that were ever published, by name; of all, or of these."""
        listed = None if names is None else list(names)
        rows = self.connection.execute(_PUBLISHED, (listed, listed))
        return {name: PublishedDataset(number, store, declared) for name, number, store, declared in rows}

    def stored_elsewhere(self, datasets: Iterable[Dataset]) -> set[str]:
        """Those of the datasets whose batches lie in another store than they are declared in."""
        stores = {dataset.name: str(dataset.store) for dataset in datasets}
        rows = self.connection.execute(_ELSEWHERE, (list(stores), list(stores.values())))
        return {name for (name,) in rows}

    def breaking(self, datasets: Iterable[Dataset]) -> dict[str, tuple[str, ...]]:
        """Those of the datasets whose declarations do not fit to what readers see of them, each with the reasons."""
        by_name = {dataset.name: dataset for dataset in datasets}
        published = self.published(by_name) if by_name else {}
        reasons = {name: _unfit(published[name].shape, by_name[name]) for name in published}
        return {name: listed for name, listed in reasons.items() if listed}

    def refuse_unreadable(self, dataset: Dataset, batches: Iterable[Batch]) -> None:
        """Raise BadInput where batches are of a generation that the declaration of the dataset does not fit."""
        listed = list(batches)
        parameters = (
            dataset.name, [batch.partition for batch in listed], [batch.batch_id.millis for batch in listed],
        )  # fmt: skip
        for path, batch_id, store, declared in self.connection.execute(_GENERATIONS_OF, parameters).fetchall():
            if reasons := _unfit(Shape(store, columns_of(declared)), dataset):
                raise BadInput(
                    f"{dataset} {path} batch {BatchId(batch_id)} is of another generation than it is declared as here. "
                    f"{' '.join(reasons)} Nothing was read. Read it with the code of then; or "
                    f"`varve evolve {dataset}`, if the declaration here is to be what readers see. Where its file has "
                    "changed since this process read it, open the project again, or start the process again."
                )

    def stores(self) -> set[str]:
        """The stores in which batches of any generation but the first may lie."""
        return {store for (store,) in self.connection.execute(_STORES)}

    def enter(self, environment: str, graph: Graph) -> None:
        """Note in which generation the environment builds each dataset with the declarations of this graph.

        A declaration that older batches do not follow begins a new generation, or goes back to an earlier one that it
        fits: that one's batches are taken and not computed again.
        """
        entered: dict[str, int] = dict(self.connection.execute(_ENTERED, (environment,)).fetchall())
        for name, published in self.published(graph.own).items():
            dataset = graph.datasets[name]
            number: int = published.generation
            before: Mapping[str, Any] = published.declaration
            if begins_generation(published.shape, shape_of(dataset)):
                code = graph.code_versions.get(name, "")
                number, before = self._fitting(dataset, code, entered.get(name), shown=published.generation)
            if number or published.generation or name in entered:
                declared = Jsonb(full_declaration(dataset, before))
                self.connection.execute(_ENTER, (environment, name, number, declared))

    def of_environment(self, environment: str) -> dict[str, EnvironmentGeneration]:
        """The generations in which an environment builds, by dataset; those that are not there are of the first one."""
        rows = self.connection.execute(_OF_ENVIRONMENT, (environment,))
        return {name: EnvironmentGeneration(*numbers) for name, *numbers in rows}

    def move(self, dataset: str, number: int, build_id: int, kept: Collection[str]) -> None:
        """Let readers see this generation: retire whatever else is current, in the transaction of the publish.

        `kept` are the partitions that the publish, which was recorded under this id, has made current.
        """
        paths = [path for (path,) in self.connection.execute(_OTHERS, (dataset, list(kept)))]
        parameters = {"dataset": dataset, "paths": paths, "build": build_id}
        for statement in (_RETIRE, _WITHDRAW, *_FORGET_NOTES):
            self.connection.execute(statement, parameters)
        self.connection.execute(_KEEP_DECLARATION, (dataset,))
        self.connection.execute(_MOVE, {"number": number, "dataset": dataset})

    def lock_current(self) -> None:
        """In a transaction: let all publishers wait, so that what is current stays until it ends."""
        self.connection.execute(_LOCK_CURRENT)

    def refuse_left(self, build: Build) -> None:
        """Raise CodeNotDeployed where readers have left the generation of the build's own batches since it began.

        Under the lock of what is current, which whoever moves readers waits for. The code may be the same: a partition
        without a batch would be current in a store that nobody looks at.
        """
        of_build = (build.dataset.name, build.paths[:1], build.batch_id.millis)
        if self.connection.execute(_LEFT_BEHIND, of_build).rowcount:
            raise CodeNotDeployed(
                f"{build}: readers were moved to another generation while this run computed. {NOTHING_LOST} Run the "
                "partitions again with the declaration that readers see."
            )

    def known(self, name: str, number: int) -> PublishedDataset:
        """A generation of a dataset as it was published last. Raises VarveError where the catalog has none of it."""
        row = self.connection.execute(_KNOWN, (name, number)).fetchone()
        if row is not None:
            return PublishedDataset(number, *row)
        raise VarveError(f"{name}: the catalog has no generation {number} of it. Nothing was changed.")

    def was_shown(self, name: str, number: int) -> bool:
        """Whether readers have ever had batches of a generation."""
        row = self.connection.execute(_WAS_SHOWN, (name, number)).fetchone()
        return row is not None and bool(row[0])

    def made(self, name: str, batches: Mapping[str, BatchId]) -> MadeBatch | None:
        """What is known of the newest of these batches, by partition; None where there is none."""
        ids = [batch_id.millis for batch_id in batches.values()]
        row = self.connection.execute(_MADE, (list(batches), ids, name)).fetchone()
        return None if row is None else MadeBatch(*row)

    def declare_again(self, name: str) -> None:
        """Let the generation that readers see be declared as it was last, whichever code is here."""
        self.connection.execute(_DECLARE_AGAIN, (name,))

    def left_stores(self, name: str) -> list[str]:
        """The stores that a dataset has left, and whose readers may still see it."""
        return [store for (store,) in self.connection.execute(_LEFT, (name,))]

    def all_left(self) -> list[tuple[str, str]]:
        """(dataset, store) of every dataset that readers may still see in a store that it has left."""
        return list(self.connection.execute(_ALL_LEFT).fetchall())

    def hidden(self, name: str) -> None:
        """Record that readers of the stores that a dataset has left see nothing of it any more."""
        self.connection.execute(_HIDDEN, (name,))

    def _fitting(
        self, dataset: Dataset, code: str, entered: int | None, *, shown: int
    ) -> tuple[int, Mapping[str, Any]]:
        """The generation that the declaration fits, and its last declaration; a new one where there is none.

        Of several the one that has kept the most partitions that this code has made, as those are taken; then the one
        in which the environment is; then the newest. Never the one that is `shown`: what is kept of it is the
        declaration with which it began, and its batches may be of wider types since.
        """
        wanted = shape_of(dataset)
        rows = self.connection.execute(_ALL, {"dataset": dataset.name, "code": code})
        known = [row for row in rows if row[0] != shown]
        for number, store, declared, _ in sorted(known, key=lambda row: (-row[3], row[0] != entered, -row[0])):
            if not begins_generation(Shape(store, columns_of(declared)), wanted):
                return int(number), declared
        row = self.connection.execute(NEXT_BATCH_ID).fetchone()
        assert row is not None
        number, declared = int(row[0]), full_declaration(dataset)
        self.connection.execute(_BEGIN, (dataset.name, number, dataset.store, Jsonb(declared)))
        return number, declared


def _unfit(published: Shape, dataset: Dataset) -> tuple[str, ...]:
    """Why published batches do not fit the declaration of a dataset; empty where they do."""
    return (misread if dataset.of_project else breaks)(published, shape_of(dataset))


def shape_of(dataset: Dataset) -> Shape:
    """What decides whether the declaration of a dataset fits to batches that there are."""
    return Shape(dataset.store, columns_of(full_declaration(dataset)))


def dataset_of(name: str, store: str, declared: Mapping[str, Any]) -> Dataset:
    """A dataset as the catalog describes it: enough to show batches in its table or view, whatever is declared now."""
    types = {ColumnType.DATE: dt.date, ColumnType.BIGINT: int, ColumnType.INT: int}
    columns = columns_of(declared)
    dimensions = [
        DynamicDimension(column.name, "of.an.earlier.declaration", types.get(column.type, str), column.type)
        for column in columns.partitions
    ]
    return Dataset(
        name=name, comment=declared["comment"], partitioning=Partitioning(tuple(dimensions)),
        schema=Schema(columns.data), store=store,
    )  # fmt: skip
