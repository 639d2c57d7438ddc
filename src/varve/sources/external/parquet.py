"""A folder of parquet that others write, with a folder below it for each partition, named as Hive names them.

Not here: tables that the metastore has (hive.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from varve.model.errors import NOTHING_LOST, MissingUpstream, UnknownPartition
from varve.model.partitions.key import parse_path
from varve.sources.external.hive import files_of
from varve.sources.external.tables import Listing, Rows, declared_columns, key_of
from varve.stores.folders.listing import listed_files
from varve.stores.frames import read_path, spark_schema
from varve.stores.views.footers import rows_by_footer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.model.external import ExternalTable
    from varve.model.partitions.key import PartitionKey
    from varve.stores.folders.listing import ListedFile


@dataclass(frozen=True)
class ParquetFolder:
    """See `tables.ExternalSource`. The name of the table is the folder."""

    table: ExternalTable
    spark: Callable[[], SparkSession]

    def listed(self, dataset: Dataset, keys: Sequence[PartitionKey] | None = None) -> Listing:
        """See `tables.ExternalSource`."""
        folders, strays = self._folders(dataset)
        wanted = folders if keys is None else {key: folders[key] for key in keys if key in folders}
        entries = {key: files_of(sorted(places)) for key, places in wanted.items()}
        return Listing(
            {key: entry for key, entry in entries.items() if entry is not None}, dict(sorted(strays.items()))
        )

    def read(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> Rows:
        """See `tables.ExternalSource`."""
        folders, _ = self._folders(dataset)
        files = {place: files for key in keys for place, files in folders.get(key, {}).items()}
        rows_by_footer(dataset, [file for of_place in files.values() for file in of_place], copied=True)
        columns = (*dataset.schema.columns, *dataset.partition_columns)
        reader = self.spark().read.schema(spark_schema(columns)).option("basePath", self.table.name)
        frame: DataFrame = reader.parquet(*map(read_path, sorted(files)))
        return Rows(declared_columns(dataset, _as_they_are_spelt(dataset, frame, files)), here=False)

    def _folders(self, dataset: Dataset) -> tuple[dict[PartitionKey, dict[str, list[ListedFile]]], dict[str, str]]:
        """The folders of each partition with their files, and why the dataset has no partition for others."""
        files = listed_files(self.table.name)
        if files is None:
            raise MissingUpstream(f"{dataset}: there is no folder {self.table}. {NOTHING_LOST}")
        names = dataset.partitioning.names
        folders: dict[PartitionKey, dict[str, list[ListedFile]]] = {}
        strays = dict[str, str]()
        by_folder: dict[str, list[ListedFile]] = {}
        for file in files:
            by_folder.setdefault(file.inside.rpartition("/")[0].strip("/"), []).append(file)
        for inside, within in by_folder.items():
            steps = inside.split("/")[: len(names)]
            values = dict(parse_path("/".join(steps))) if all("=" in step for step in steps) and names else {}
            if set(values) != set(names):
                strays[inside] = f"{inside or 'a file'} is in no folder {'/'.join(f'{name}=...' for name in names)}"
                continue
            try:
                key = key_of(dataset, values)
            except UnknownPartition as error:
                strays[inside] = str(error).rstrip(".")
                continue
            folder = "/".join([self.table.name.rstrip("/"), *(steps if names else [])])
            folders.setdefault(key, {}).setdefault(folder, []).extend(within)
        return folders, strays


def _as_they_are_spelt(dataset: Dataset, frame: DataFrame, folders: Iterable[str]) -> DataFrame:
    """The frame with the partition columns that the names of the folders spell.

    Where a name is percent-encoded, as that of `Zürich` by Arrow, Spark takes each byte of a letter for a letter.
    """
    from pyspark.sql import functions as F  # noqa: N812

    for name in dataset.partitioning.names:
        texts = {step.removeprefix(f"{name}=") for folder in folders for step in folder.split("/")
                 if step.startswith(f"{name}=")}  # fmt: skip
        misread = {read: spelt for text in texts if (read := _read_by_bytes(text)) != (spelt := unquote(text))}
        if misread:
            spelt_of = F.create_map(*[F.lit(text) for pair in misread.items() for text in pair])
            frame = frame.withColumn(name, F.coalesce(spelt_of[F.col(f"`{name}`")], F.col(f"`{name}`")))
    return frame


def _read_by_bytes(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda digits: chr(int(digits[1], 16)), text)
