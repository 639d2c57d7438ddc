"""The landing folder: CSV files as partners send them, one per partition, read into typed rows or refused by line.

`<root>/<db>/<table>/<partition key>.csv`; UTF-8, comma-separated, a header line with the dataset's columns, `NA` for
what is missing. What lies there is never changed.

Not here: which files to look at when (pipeline_defs/planning/arrivals.py), what is wrong with one
(landing_problems.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipeline_defs.model.batch import Input
from pipeline_defs.model.errors import NOTHING_LOST, BadInput, MissingUpstream, some
from pipeline_defs.model.schema import Column, ColumnType
from pipeline_defs.planning.arrivals import LandingFile
from pipeline_defs.planning.triggers import landing_source
from resources.files import open_files
from resources.landing_problems import MISSING, problem_of_file, problems_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fsspec import AbstractFileSystem
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from pipeline_defs.model.dataset import Dataset
    from resources.builds import OpenBuild
    from resources.store import Build

ENDING = ".csv"
_THREADS = 8
_CHUNK = 1 << 20
# Marks the payload of an error that a Spark expression raised about a row.
_MARK = "VARVE_BAD_ROW"
_PROBLEMS_TOLD = 5


@dataclass(frozen=True, slots=True)
class Inspected:
    """A landing file whose header and end are as they should be, with the fingerprint of its content."""

    uri: str
    size: int
    fingerprint: str


@dataclass(frozen=True)
class Landing:
    """The landing folder under one root (a local folder or a URI)."""

    root: str

    def folder(self, dataset: Dataset) -> str:
        """Where the files of a dataset arrive."""
        return f"{self.root}/{dataset.db}/{dataset.table}"

    def uri(self, dataset: Dataset, key: str) -> str:
        """The file of a partition, by the key as Dagster spells it."""
        return f"{self.folder(dataset)}/{key}{ENDING}"

    def files(self, dataset: Dataset) -> Iterator[LandingFile]:
        """All files of a dataset but those that a partner is still writing under a temporary name."""
        files, folder = open_files(self.folder(dataset))
        if not files.exists(folder):
            return
        for entry in files.ls(folder, detail=True, refresh=True):
            name = entry["name"].rsplit("/", 1)[-1]
            if not name.endswith(ENDING) or name.startswith((".", "_")):
                continue
            changed, found = _changed_at(entry), entry
            if entry.get("islink"):
                # A link may be newer than its file, and its file newer than it.
                found = _linked(files, entry["name"])
                changed = max(changed, _changed_at(found)) if found else changed
            if found.get("type") == "file":
                yield LandingFile(changed, name.removesuffix(ENDING), entry["name"], found["size"])

    def read(self, opened: OpenBuild, spark: SparkSession) -> DataFrame:
        """The files of the build's partitions as typed rows with their partition column, recorded in the trace.

        Raises MissingUpstream and BadInput here for whole files; a bad row fails the job that reads it, and
        `explain_bad_row` says which line it was.
        """
        build = opened.build
        uris = {key: self.uri(build.dataset, build.dataset.partitioning.to_dagster(key)) for key in build.partitions}
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(lambda uri: inspect(build.dataset, uri), uris.values()))
        if missing := [uri for uri, file in zip(uris.values(), found, strict=True) if file is None]:
            raise MissingUpstream(
                f"{build.dataset}: no landing file {some(missing, limit=3)}. {NOTHING_LOST} "
                "Wait for the partner to send it, or choose a partition that has one."
            )
        whole = [file for file in found if file is not None]
        for key, file in zip(build.partitions, whole, strict=True):
            build.reads(key, Input(landing_source(build.dataset), key.path, file.fingerprint))
        opened.last_looks.append(lambda: _refuse_changed(build, whole))
        return _frame(spark, build.dataset, [file.uri for file in whole])


def inspect(dataset: Dataset, uri: str) -> Inspected | None:
    """Look at a whole file without parsing its rows; None where there is none. Raises BadInput."""
    files, path = open_files(uri)
    digest = hashlib.blake2b(digest_size=16)
    head, last, size = b"", b"", 0
    try:
        # A pipe would be waited for, and a device has no end.
        if (kind := files.info(path)["type"]) != "file":
            what = "a directory" if kind == "directory" else "something else"
            raise BadInput(f"{uri} ({dataset}): {what} lies where a file is expected. {NOTHING_LOST} Remove it.")
        with files.open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                head, last, size = head or chunk, chunk[-1:], size + len(chunk)
                digest.update(chunk)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise BadInput(
            f"{uri} ({dataset}) may not be read: {error.strerror or error}. {NOTHING_LOST} "
            "Give the user whom Varve runs as the right to read it."
        ) from error
    if problem := problem_of_file(dataset, head, last, size):
        raise BadInput(f"{uri} ({dataset}): {problem} {NOTHING_LOST} Ask the partner to send it again.")
    return Inspected(uri, size, digest.hexdigest())


def explain_bad_row(build: Build, error: str) -> BadInput | None:
    """The error of a Spark job in terms of file, line and column; None where it was not about a landing row."""
    marked = re.search(_MARK + r"(\{.*?\})" + _MARK, error)
    if not marked or not build.dataset.landing:
        return None
    payload = _payload(marked[1])
    # Spark spells a path as a URI: `a b` as `a%20b`.
    uri = re.sub("^file:(//)?", "", unquote(payload["file"]))
    problems = list(problems_of_rows(uri, build.dataset.schema.columns))
    listed = some(problems, limit=_PROBLEMS_TOLD) if problems else f"column {payload['column']}: {payload['found']!r}"
    return BadInput(
        f"{uri} ({build.dataset}): {listed}. {NOTHING_LOST} Ask the partner to send it again; "
        "when it arrives its partition runs by itself."
    )


def _payload(text: str) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(text)
    except ValueError:
        # Some of Spark's errors quote the message once more.
        found = json.loads(text.replace('\\"', '"'))
    return found


def _frame(spark: SparkSession, dataset: Dataset, uris: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    raw = ", ".join(f"`{column.name}` STRING" for column in dataset.schema.columns)
    rows = (
        spark.read.schema(f"{raw}, _broken STRING")
        .option("header", "true")
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", "_broken")
        .option("nullValue", MISSING)
        .option("encoding", "UTF-8")
        .csv(list(uris))
    )
    file = F.col("_metadata.file_path")
    (partition,) = dataset.partition_columns
    # Spark spells the name as in a URI, where a plus is a plus.
    name = F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))
    stem = F.regexp_extract(name, r"(?s)^(.*)\.csv$", 1)
    # The file is named as Dagster spells the key, with some characters escaped; the column holds the key itself.
    key = F.coalesce(F.try_url_decode(F.replace(stem, F.lit("+"), F.lit("%2B"))), stem)
    columns = [_typed(column, file) for column in dataset.schema.columns]
    # A row with too few or too many fields is told by its first column.
    broken = F.col("_broken").isNotNull()
    first = F.when(broken, _refuse(file, "_row", F.col("_broken"))).otherwise(columns[0])
    return rows.select(
        first.cast(dataset.schema.columns[0].type.lower()).alias(dataset.schema.columns[0].name),
        *[typed.alias(column.name) for typed, column in zip(columns[1:], dataset.schema.columns[1:], strict=True)],
        key.cast(partition.type.lower()).alias(partition.name),
    )


def _typed(column: Column, file: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    raw = F.col(f"`{column.name}`")
    if column.type is ColumnType.STRING:
        # Spark reads bytes that are no UTF-8 as the replacement character.
        return F.when(raw.contains("\ufffd"), _refuse(file, column.name, raw)).otherwise(raw)
    typed = raw.try_cast(column.type.lower())
    return F.when(raw.isNotNull() & typed.isNull(), _refuse(file, column.name, raw)).otherwise(typed)


def _refuse(file: SparkColumn, column: str, found: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    payload = F.to_json(
        F.struct(file.alias("file"), F.lit(column).alias("column"), F.substring(found, 1, 80).alias("found"))
    )
    return F.raise_error(F.concat(F.lit(_MARK), payload, F.lit(_MARK)))


def _refuse_changed(build: Build, files: Iterable[Inspected]) -> None:
    for file in files:
        now = inspect(build.dataset, file.uri)
        if now is None or now.fingerprint != file.fingerprint:
            raise BadInput(
                f"{file.uri} ({build.dataset}) changed while it was read. {NOTHING_LOST} "
                "Run the partition again; the arrival sensor does so by itself."
            )


def _linked(files: AbstractFileSystem, link: str) -> dict[str, Any]:
    """What a link leads to; nothing where that is not there."""
    try:
        found: dict[str, Any] = files.info(link)
    except FileNotFoundError:
        return {}
    return found


def _changed_at(entry: dict[str, Any]) -> float:
    times = [entry.get(name) for name in ("mtime", "created", "LastModified", "last_modified")]
    return max(time.timestamp() if isinstance(time, dt.datetime) else float(time) for time in times if time)
