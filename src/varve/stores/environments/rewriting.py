"""Rewrites batches of one generation as batches of the next: columns renamed, dropped, cast or added as NULL.

The rows of landing files and of tables of others come from outside, and may not be there any more; so they are never
asked for again where the rows that were taken say the same. A value that a cast would change is refused.

Not here: which declarations allow it (varve/planning/changes/generation.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.model.errors import BadInput, counted, some
from varve.model.schema import Schema
from varve.model.store_options import LakeOptions, WarehouseOptions
from varve.planning.changes.generation import sources_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.catalog.catalog import Catalog
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.schema import ColumnType
    from varve.planning.changes.generation import Shape
    from varve.stores.store import Store

# One job rewrites so many partitions; what it has written is kept when the next one is killed.
AT_ONCE = 50


@dataclass(frozen=True)
class Rewriter:
    """Rewrites batches of a dataset in an environment.

    Attributes:
        catalog: that of the environment.
        dataset: as it is declared now.
        before: its shape in the generation that is rewritten.
        old_store, store: where the old and the new batches lie.
    """

    catalog: Catalog
    dataset: Dataset
    before: Shape
    old_store: Store
    store: Store

    def rewrite(self, batches: Sequence[Batch], *, run_id: str, code_version: str) -> None:
        """Make these batches batches of the environment, in one build; they keep what they were made from.

        Raises BadInput for a value that would be another one, and what a build raises.
        """
        dataset = self.dataset
        keys = {batch.partition: dataset.partitioning.from_path(batch.partition) for batch in batches}
        build = self.catalog.begin(dataset, sorted(keys.values()), run_id=run_id, code_version=code_version)
        try:
            for batch in batches:
                for read in batch.inputs:
                    build.reads(keys[batch.partition], read)
            old = self.old_store.read(former(dataset, self.before), batches)
            staged = self.store.stage(build, self._as_declared(old))
            self.catalog.staged(build, staged)
            self.store.verify(build, staged)
            self.store.publish(build, staged)
        except BaseException as error:
            self.catalog.fail(build, str(error))
            self.store.discard(build)
            raise
        finally:
            self.catalog.release(build)

    def _as_declared(self, old: DataFrame) -> DataFrame:
        """The rows with the columns that are declared now. Raises BadInput where a value would be another one."""
        from pyspark.sql import functions as spark

        sources = sources_of(self.dataset.schema.columns, self.before)
        pairs = [(column, sources.get(column.name)) for column in self.dataset.schema.columns]
        cast = [(column, source) for column, source in pairs if source is not None and source.type != column.type]
        if cast:
            changes = {
                column.name: ~spark.col(source.name).try_cast(column.type).try_cast(source.type).eqNullSafe(
                    spark.col(source.name))
                for column, source in cast
            }  # fmt: skip
            (counts,) = old.agg(*[spark.sum(is_lost.cast("bigint")).alias(name) for name, is_lost in changes.items()]
                                ).collect()  # fmt: skip
            lost = {name: count for name, count in counts.asDict().items() if count}
            if lost:
                names = {column.name: (source.name, column.type) for column, source in cast}
                shown = [
                    f"{name}: {counted(count, 'value')}, such as {self._example(old, changes[name], *names[name])}"
                    for name, count in lost.items()
                ]
                raise BadInput(
                    f"{self.dataset}: not every value stays the same in the new type: {some(shown)}. Nothing was "
                    "published. Declare a type that holds them, or a new column beside the old one."
                )
        columns = [
            (spark.lit(None) if source is None else spark.col(source.name)).cast(column.type).alias(column.name)
            for column, source in pairs
        ]
        return old.select(*columns, *[spark.col(column.name) for column in self.dataset.partition_columns])

    def _example(self, old: DataFrame, is_lost: SparkColumn, name: str, kind: ColumnType) -> str:
        """A value that would be another one, and the partition in which it is."""
        partitions = [column.name for column in self.dataset.partition_columns]
        row = old.where(is_lost).select(name, *partitions).first()
        assert row is not None, "there are such values"
        where = " ".join(f"{column}={row[column]}" for column in partitions)
        return f"{row[name]!s} of {where or 'its only partition'}, which is no {kind}"


def former(dataset: Dataset, before: Shape) -> Dataset:
    """The dataset with the store and the data columns of an earlier generation, to read its batches."""
    return replace(
        dataset, store=before.place, schema=Schema(before.columns.data), warehouse=WarehouseOptions(),
        lake=LakeOptions(), expectations=(), incremental=None, reject_into=None,
    )  # fmt: skip
