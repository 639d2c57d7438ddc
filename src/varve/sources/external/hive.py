"""A table of the metastore: its partitions as the metastore has them, its rows by Spark.

A partition is told to have changed by its files: their names, sizes and times. Spark overwrites a partition without a
word to the metastore.

Not here: the tables that this project itself shows there (varve/stores/lake/projection.py).
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from varve.model.errors import NOTHING_LOST, MissingUpstream, UnknownPartition, VarveError
from varve.model.partitions.key import parse_path, text_of
from varve.services.files import open_files
from varve.sources.external.tables import (
    ListedPartition,
    Listing,
    Rows,
    declared_columns,
    key_of,
    listing_of_rows,
    no_such_column,
)
from varve.stores.folders import metastore
from varve.stores.frames import in_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.external import OutsideTable
    from varve.model.partitions.key import PartitionKey

_THREADS = 8
_NULL = "__HIVE_DEFAULT_PARTITION__"
_TIMES = ("mtime", "LastModified", "last_modified", "modificationTime", "created")


@dataclass(frozen=True)
class HiveTable:
    """See `source.Outside`. `uris` are those of a deployed metastore, which lists all partitions in one call."""

    table: OutsideTable
    spark: Callable[[], SparkSession]
    uris: str | None = None

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `source.Outside`."""
        frame = self._frame(dataset)
        if self.table.changed:
            return self._by_column(dataset, frame, keys)
        folders: dict[PartitionKey, list[str]] = {}
        strays = []
        for texts, location in self._partitions(dataset, keys):
            try:
                folders.setdefault(key_of(dataset, texts), []).append(location)
            except UnknownPartition as error:
                strays.append(str(error).rstrip("."))
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(_files, folders.values()))
        return Listing({key: each for key, each in zip(folders, found, strict=True) if each}, tuple(strays))

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `source.Outside`. Columns that are not declared are left out."""
        wanted = [column.name for column in (*dataset.schema.columns, *dataset.partition_columns)]
        frame = declared_columns(dataset, self._frame(dataset, wanted).where(in_partitions(keys)))
        return Rows(frame, here=False)

    def _frame(self, dataset: Dataset, wanted: Sequence[str] | None = None) -> DataFrame:
        """The table as it is now: Spark remembers the files of tables that it has read."""
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
            told = str(error).strip().splitlines()[0]
            raise MissingUpstream(f"{dataset}: the table {self.table} cannot be read: {told} {NOTHING_LOST}") from error
        there = {column.lower() for column in columns}
        names = [*(wanted or dataset.partitioning.names), *filter(None, [self.table.changed])]
        if missing := [each for each in names if each.lower() not in there]:
            raise no_such_column(dataset, self.table, missing, columns)
        return frame

    def _by_column(self, dataset: Dataset, frame: DataFrame, keys: Sequence[PartitionKey] | None) -> Listing:
        from pyspark.sql import functions as F  # noqa: N812

        names = dataset.partitioning.names
        rows = (frame if keys is None else frame.where(in_partitions(keys))).groupBy(*[F.col(f"`{n}`") for n in names])
        newest = F.max(F.col(f"`{self.table.changed}`")).cast("string")
        return listing_of_rows(dataset, rows.agg(F.count(F.lit(1)), newest).collect())

    def _partitions(
        self, dataset: Dataset, keys: Sequence[PartitionKey] | None
    ) -> Iterator[tuple[Mapping[str, str | None], str]]:
        """The values of our columns, and where the files lie, of each of the table's partitions."""
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
            raise self._not_partitioned(dataset) from error
        values = [dict(parse_path(path)) for path in spelt]
        texts = [self._ours(dataset, each) for each in values]
        if keys is not None:
            # A statement for each: only of those that are asked for.
            wanted = {tuple(map(text_of, key.values)) for key in keys}
            chosen = [place for place, each in enumerate(texts) if tuple(each.values()) in wanted]
            values, texts = [values[place] for place in chosen], [texts[place] for place in chosen]
        with ThreadPoolExecutor(_THREADS) as pool:
            places = list(pool.map(self._location, values))
        yield from ((each, place) for each, place in zip(texts, places, strict=True) if place is not None)

    def _location(self, values: Mapping[str, str]) -> str | None:
        """Where the files of a partition lie; None where it was dropped since it was listed."""
        from pyspark.errors import AnalysisException

        spec = ", ".join(f"`{name}`={_literal(value)}" for name, value in values.items())
        try:
            rows = self.spark().sql(f"DESCRIBE EXTENDED {self._quoted} PARTITION ({spec})").collect()
        except AnalysisException:
            return None
        return next((str(row[1]) for row in rows if row[0] == "Location"), None)

    def _by_metastore(self, dataset: Dataset) -> list[tuple[dict[str, str | None], str]]:
        assert self.uris is not None
        db, _, name = self.table.name.rpartition(".")
        names, found = metastore.partitions(self.uris, db or "default", name)
        if not names:
            raise self._not_partitioned(dataset)
        return [(self._ours(dataset, dict(zip(names, values, strict=True))), place) for values, place in found]

    def _ours(self, dataset: Dataset, values: Mapping[str, str]) -> dict[str, str | None]:
        known = {name.lower(): value for name, value in values.items()}
        if any(name.lower() not in known for name in dataset.partitioning.names):
            raise self._not_partitioned(dataset)
        texts = {name: known[name.lower()] for name in dataset.partitioning.names}
        return {name: None if text == _NULL else text for name, text in texts.items()}

    def _not_partitioned(self, dataset: Dataset) -> VarveError:
        names = ", ".join(dataset.partitioning.names)
        return VarveError(
            f"{dataset}: {self.table} is not partitioned by {names}, so that the metastore does not say which "
            "partitions there are. Name a column whose highest value tells that one was changed: "
            f"OPTIONS (changed = 'updated_at'). {NOTHING_LOST}"
        )

    @property
    def _quoted(self) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.table.name.split("."))


def _files(locations: Sequence[str]) -> ListedPartition | None:
    """What lies in the folders of a partition; None where none of them is there, as Spark would read no row of it."""
    hashed, size, there = hashlib.blake2b(digest_size=16), 0, False
    for location in sorted(locations):
        files, place = open_files(location)
        hashed.update(f"{place}\n".encode())
        try:
            entries: Mapping[str, Any] = files.find(place, detail=True)
        except FileNotFoundError:
            continue
        there = there or bool(entries) or files.exists(place)
        for name, entry in sorted(entries.items()):
            inside = name.removeprefix(place)
            if any(step.startswith((".", "_")) for step in inside.split("/") if step):
                continue
            changed = next((entry[time] for time in _TIMES if entry.get(time)), "")
            hashed.update(f"{inside}\t{entry['size']}\t{changed}\n".encode())
            size += entry["size"]
    return ListedPartition(hashed.hexdigest(), size) if there else None


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="spark")
