"""An external table in the metastore: the metastore lists its partitions, and Spark reads its rows.

A change of a partition is detected by its files (names, sizes and times), because Spark overwrites a partition without
changing the metastore.

Not here: the tables of this project in the metastore (varve/stores/lake/projection.py).
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import NOTHING_LOST, BadInput, MissingUpstream, UnknownPartition, VarveError
from varve.model.partitions.key import parse_path
from varve.model.schema import ColumnType
from varve.services.files import open_files
from varve.sources.external.tables import (
    ListedPartition,
    Listing,
    Rows,
    as_path,
    as_texts,
    declared_columns,
    key_of,
    listing_of_rows,
    no_such_column,
)
from varve.stores.folders import metastore
from varve.stores.folders.listing import ListedFile, listed_files
from varve.stores.frames import described_location, in_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.external import ExternalTable
    from varve.model.partitions.key import PartitionKey

_THREADS = 8
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class HiveTable:
    """See `tables.ExternalSource`. `uris`: addresses of a deployed metastore, which lists all partitions at once."""

    table: ExternalTable
    spark: Callable[[], SparkSession]
    uris: str | None = None

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `tables.ExternalSource`."""
        frame = self._frame(dataset)
        if self.table.changed:
            return self._by_column(dataset, frame, keys)
        folders: dict[PartitionKey, list[str]] = {}
        strays = dict[str, str]()
        for texts, location in self._partitions(dataset, keys):
            try:
                folders.setdefault(key_of(dataset, texts), []).append(location)
            except UnknownPartition as error:
                strays[as_path(texts)] = str(error).rstrip(".")
        with ThreadPoolExecutor(_THREADS) as pool:
            listed_partitions = list(pool.map(files_of, folders.values()))
        return Listing(
            {key: partition for key, partition in zip(folders, listed_partitions, strict=True) if partition},
            strays,
        )

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `tables.ExternalSource`. Columns that are not declared are left out."""
        wanted = [column.name for column in (*dataset.schema.columns, *dataset.partition_columns)]
        # What the listing takes for no key because of its spelling is not read either.
        frame = _keys_as_declared(dataset, self._frame(dataset, wanted), spelt=not self.table.changed)
        return Rows(declared_columns(dataset, frame.where(in_partitions(keys))), here=False)

    def _frame(self, dataset: Dataset, wanted: Sequence[str] | None = None) -> DataFrame:
        """The table as it is now, refreshed because Spark caches the files of a table that it has read."""
        from pyspark.errors import AnalysisException

        spark = self.spark()
        name = self._quoted
        try:
            if not spark.catalog.tableExists(name):
                raise MissingUpstream(f"{dataset}: there is no table {self.table} in the metastore. {NOTHING_LOST}")
            spark.sql(f"REFRESH TABLE {name}")
            frame = spark.table(name)
            columns = frame.columns
        except AnalysisException as error:
            first_line = str(error).strip().splitlines()[0]
            raise MissingUpstream(
                f"{dataset}: the table {self.table} cannot be read: {first_line} {NOTHING_LOST}"
            ) from error
        lower_names = {column.lower() for column in columns}
        names = [*(wanted or dataset.partitioning.names), *filter(None, [self.table.changed])]
        if missing := [wanted_name for wanted_name in names if wanted_name.lower() not in lower_names]:
            raise no_such_column(dataset, self.table, missing, columns)
        return frame

    def _by_column(self, dataset: Dataset, frame: DataFrame, keys: Sequence[PartitionKey] | None) -> Listing:
        from pyspark.sql import functions as F  # noqa: N812

        names = dataset.partitioning.names
        frame = _keys_as_declared(dataset, frame, spelt=False)
        rows = (frame if keys is None else frame.where(in_partitions(keys))).groupBy(*[F.col(f"`{n}`") for n in names])
        newest = F.max(F.col(f"`{self.table.changed}`")).alias("varve_newest")
        listed = rows.agg(F.count(F.lit(1)).alias("varve_rows"), newest)
        return listing_of_rows(dataset, as_texts(listed, dataset, "varve_newest").collect())

    def _partitions(
        self, dataset: Dataset, keys: Sequence[PartitionKey] | None
    ) -> Iterator[tuple[Mapping[str, str | None], str]]:
        """For each partition of the table the values of our columns, and the location of its files.

        A dataset without partitions has all of them, or the table's own location where that has none either.
        """
        if self.uris is not None:
            try:
                yield from self._by_metastore(dataset)
            except metastore.MetastoreUnusable:
                pass
            else:
                return
        from pyspark.errors import AnalysisException

        spark = self.spark()
        try:
            spelt = [row[0] for row in spark.sql(f"SHOW PARTITIONS {self._quoted}").collect()]
        except AnalysisException as error:
            if not dataset.partitioning.names and (location := self._location({})) is not None:
                yield {}, location
                return
            raise self._not_partitioned(dataset) from error
        values = [dict(parse_path(path)) for path in spelt]
        texts = [self._texts_of_columns(dataset, column_texts) for column_texts in values]
        if keys is not None:
            # Every partition costs a statement: only the requested ones are described.
            wanted = frozenset(keys)
            positions = [place for place, column_texts in enumerate(texts) if _named(dataset, column_texts, wanted)]
            values, texts = [values[location] for location in positions], [texts[location] for location in positions]
        with ThreadPoolExecutor(_THREADS) as pool:
            locations = list(pool.map(self._location, values))
        yield from (
            (column_texts, location)
            for column_texts, location in zip(texts, locations, strict=True)
            if location is not None
        )

    def _location(self, values: Mapping[str, str]) -> str | None:
        """The location of a partition's files; None where it was dropped since it was listed. {}: of the table's."""
        from pyspark.errors import AnalysisException

        spec = ", ".join(f"`{name}`={_literal(value)}" for name, value in values.items())
        try:
            of_partition = f" PARTITION ({spec})" if values else ""
            rows = self.spark().sql(f"DESCRIBE EXTENDED {self._quoted}{of_partition}").collect()
        except AnalysisException:
            return None
        return described_location(rows)

    def _by_metastore(self, dataset: Dataset) -> list[tuple[dict[str, str | None], str]]:
        assert self.uris is not None
        db, _, name = self.table.name.rpartition(".")
        names, listed = metastore.partitions(self.uris, db or "default", name)
        if not names:
            if not dataset.partitioning.names and (location := self._location({})) is not None:
                return [({}, location)]
            raise self._not_partitioned(dataset)
        return [
            (self._texts_of_columns(dataset, dict(zip(names, values, strict=True))), location)
            for values, location in listed
        ]

    def _texts_of_columns(self, dataset: Dataset, values: Mapping[str, str]) -> dict[str, str | None]:
        value_by_name = {name.lower(): value for name, value in values.items()}
        if any(name.lower() not in value_by_name for name in dataset.partitioning.names):
            raise self._not_partitioned(dataset)
        columns = {column.name.lower(): column.name for column in dataset.schema.columns}
        if dataset.is_view and (data := [columns[name] for name in value_by_name if name in columns]):
            raise BadInput(
                f"{dataset}: {', '.join(data)} is a partition column of {self.table}, so no file has it. "
                f"{NOTHING_LOST} Partition the dataset by it, or leave out VIEW: copied rows have it."
            )
        texts = {name: value_by_name[name.lower()] for name in dataset.partitioning.names}
        return {name: None if text == _NULL else text for name, text in texts.items()}

    def _not_partitioned(self, dataset: Dataset) -> VarveError:
        names = ", ".join(dataset.partitioning.names)
        by = f"is not partitioned by {names}" if names else "has no folder of its own"
        return VarveError(
            f"{dataset}: {self.table} {by}, so that the metastore does not say which "
            "partitions there are. Name a column whose highest value tells that one was changed: "
            f"OPTIONS (changed = 'updated_at'). {NOTHING_LOST}"
        )

    @property
    def _quoted(self) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.table.name.split("."))


def files_of(locations: Sequence[str]) -> ListedPartition | None:
    """A hash and the size of the files of a partition; None where no folder is there, so that Spark reads no row."""
    digest = hashlib.blake2b(digest_size=16)
    listed: dict[str, list[ListedFile]] = {}
    for location in sorted(locations):
        _, place = open_files(location)
        digest.update(f"{place}\n".encode())
        if (files := listed_files(location)) is None:
            continue
        listed[location] = files
        for file in files:
            digest.update(f"{file.inside}\t{file.size}\t{file.changed}\n".encode())
    if not listed:
        return None
    size = sum(file.size for files in listed.values() for file in files)
    return ListedPartition(digest.hexdigest(), size, listed)


def _named(dataset: Dataset, texts: Mapping[str, str | None], keys: Collection[PartitionKey]) -> bool:
    """Whether the texts of the partition columns name one of the partitions."""
    try:
        return key_of(dataset, texts) in keys
    except UnknownPartition:
        return False


def _keys_as_declared(dataset: Dataset, frame: DataFrame, *, spelt: bool) -> DataFrame:
    """The frame with partition columns of the declared types: a month is 3 where the table has the text 03.

    With `spelt`, a text is a date only as dates are spelt: `2022-3-1` is none. A value that is none is NULL.
    """
    from pyspark.sql import functions as F  # noqa: N812

    types = {
        name.lower(): ColumnType(kind) for name, kind in frame.dtypes if name.lower() in dataset.partitioning.names
    }
    for column in dataset.partition_columns:
        if types.get(column.name) != column.type and column.type is not ColumnType.STRING:
            # What is no key is in no partition that is read: it must not stop those that are.
            found = F.col(f"`{column.name}`")
            declared = found.try_cast(str(column.type))
            if spelt and column.type == ColumnType.DATE and types.get(column.name) == ColumnType.STRING:
                declared = F.when(declared.cast("string") == found, declared)
            frame = frame.withColumn(column.name, declared)
    return frame


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="spark")
