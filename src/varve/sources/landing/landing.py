"""The landing folder: files of partners, read into typed rows or refused by line. The files are never changed.

Not here: which files to look at when (varve/planning/arrivals/arrivals.py), which there are and what stands in them
(varve/sources/formats).
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import (
    NOTHING_LOST,
    BadInput,
    MissingUpstream,
    OutsideDimension,
    UnknownPartition,
    counted,
    some,
)
from varve.model.landing.options import LandingFormat, split_compression
from varve.model.partitions.key import plain
from varve.model.partitions.time_dimension import TimeDimension
from varve.model.schema import ColumnType
from varve.planning.run_requests import landing_source
from varve.services.files import open_files
from varve.services.links import refuse_link_out
from varve.sources import formats as formats_package
from varve.sources.formats import formats, tasks, texts
from varve.sources.formats.file_reading import BadFile, DeclaredColumn, FileReading, FileSource
from varve.sources.formats.lines import refuse_unended
from varve.sources.formats.tasks import MARK, BadRows, FilePiece
from varve.sources.landing import listing
from varve.sources.landing.growth import Intake
from varve.sources.landing.inspected import BLOCK, Inspected, new_fingerprint
from varve.sources.landing.tolerance import Tolerance
from varve.stores.frames import arrow_schema, arrow_type, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.landing.growth import Growth
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile
    from varve.sources.formats.checks import RowProblem
    from varve.stores.open_build import OpenBuild

_THREADS = 8
_PROBLEMS_TOLD = 5
_PROBLEMS_COUNTED = 1_000
# Fewer bytes are read in this process: a Spark job with Python workers costs a second before its first row.
_BYTES_FOR_SPARK = 1 << 20
# How many bytes are worth a task of their own, and the largest number of tasks.
_BYTES_A_TASK = 4 << 20
_MOST_TASKS = 1_000
# The cost of opening a file, as the number of bytes that could be read in that time.
_BYTES_TO_OPEN = 64 << 10
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Landing:
    """The landing folder under one root (a local folder or a URI).

    Attributes:
        settle_seconds: in partitions with several files, how long a file must be unchanged before it is taken.
        bytes_for_spark: with more bytes, Spark's workers read the files, else this process does.
    """

    root: str
    settle_seconds: float = 0.0
    bytes_for_spark: int = _BYTES_FOR_SPARK

    def folder(self, dataset: Dataset) -> str:
        """The folder in which the files of a dataset arrive."""
        return f"{self.root}/{dataset.db}/{dataset.table}"

    def uri(self, dataset: Dataset, key: str) -> str:
        """The URI of the file of a partition, whose key is given in Dagster's spelling."""
        pattern = listing.pattern_of(dataset)
        return f"{self.folder(dataset)}/{pattern.name(dataset.partitioning.from_dagster(key))}"

    def files(self, dataset: Dataset) -> Iterator[LandingFile]:
        """All files in the folder of a dataset that are not hidden.

        Each has either the partition to which it belongs, or the reason for which it cannot be taken.
        """
        return listing.listed(dataset, self.folder(dataset))

    def joined(self, dataset: Dataset, whole: Sequence[Inspected]) -> Inspected:
        """The files of one partition as one `Inspected`, with the total size and a common fingerprint."""
        uri = whole[0].uri if len(whole) == 1 else f"{whole[0].uri} and {len(whole) - 1} more"
        return Inspected(uri, sum(file.size for file in whole), self._fingerprint(dataset, whole))

    def read(self, opened: OpenBuild, spark: SparkSession, *, reuse_allowed: bool = False) -> DataFrame:
        """The files of the build's partitions as typed rows with their partition columns, recorded in the trace.

        Of partitions that grow only the new files are read, where the rows of the batch before can be kept; for
        `reuse_allowed` see `growth.Intake`.

        Raises MissingUpstream and BadInput for errors of whole files. A bad row fails the Spark job that reads it;
        `explain_bad_row` then finds the line.
        """
        build = opened.build
        parts, unsettled = self._files_by_partition(build)
        if build.dataset.incremental is not None:
            intake = Intake(opened, self.folder(build.dataset), partial(_inspect_all, build.dataset), reuse_allowed)
            whole = intake.taken(parts, {file.uri for file in unsettled})
            self._refuse_missing(build, [key for key in build.partitions if not whole[key]])
            files_to_read = {key: _files_read(build.growth[key], files) for key, files in whole.items()}
        else:
            inspected = _inspect_all(build.dataset, [file.uri for files in parts.values() for file in files])
            results = {key: [inspected[file.uri] for file in files] for key, files in parts.items()}
            whole = {key: [file for file in files if file is not None] for key, files in results.items()}
            self._refuse_missing(build, [key for key in build.partitions if not whole[key] or None in results[key]])
            files_to_read = whole
        for key, files in whole.items():
            version = self._fingerprint(build.dataset, files)
            build.reads(key, Input(landing_source(build.dataset), key.path, version))
        opened.pre_publish_checks.append(
            lambda: _refuse_changed(build, [file for files in files_to_read.values() for file in files])
        )
        tolerance = Tolerance.of(build.dataset)
        frame = self._frame(spark, build.dataset, files_to_read, tolerance)
        opened.rejected_rows = tolerance.table() if tolerance is not None else None
        return frame

    def _files_by_partition(self, build: Build) -> tuple[dict[PartitionKey, list[LandingFile]], list[LandingFile]]:
        """The files of each partition, as far as they are there, and the files that are still being written."""
        dataset = build.dataset
        key_of_text = {dataset.partitioning.to_dagster(key): key for key in build.partitions}
        # Where a partition has a single file, it is checked for changes before the publish instead.
        many = listing.pattern_of(dataset).many
        deadline = time.monotonic() + 2 * self.settle_seconds
        while True:
            listed = listing.listed(dataset, self.folder(dataset), build.partitions)
            files = [file for file in listed if file.key in key_of_text and not file.problem and not file.temporary]
            now = time.time()
            unsettled = [file for file in files if many and listing.is_unsettled(file, self.settle_seconds, now)]
            # A file that is being sent again must not be missing from the batch: wait for it, but not for ever.
            if not unsettled or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        files_by_key: dict[str, list[LandingFile]] = {}
        for file in sorted((file for file in files if file not in unsettled), key=lambda file: file.uri):
            files_by_key.setdefault(file.key, []).append(file)
        return {key: files_by_key.get(text, []) for text, key in key_of_text.items()}, unsettled

    def _refuse_missing(self, build: Build, missing: Sequence[PartitionKey]) -> None:
        if missing:
            uris = [self.uri(build.dataset, build.dataset.partitioning.to_dagster(key)) for key in missing]
            if not listing.pattern_of(build.dataset).many:
                for uri in uris:
                    # It may be there without being a readable file; then this raises BadInput.
                    inspect(build.dataset, uri)
            raise MissingUpstream(
                f"{build.dataset}: no landing file {some(uris, limit=3)}. {NOTHING_LOST} "
                "Wait for the partner to send it, or choose a partition that has one.",
                partitions=[key.path for key in missing],
            )

    def _fingerprint(self, dataset: Dataset, files: Sequence[Inspected]) -> str:
        """The fingerprint of one file, or a hash of names and contents where a partition may have several files."""
        if not listing.pattern_of(dataset).many:
            return files[0].fingerprint
        digest = hashlib.blake2b(digest_size=16)
        for file in sorted(files, key=lambda inspected: inspected.uri):
            name = file.uri.partition(f"/{dataset.db}/{dataset.table}/")[2]
            digest.update(f"{name}\0{file.fingerprint}\n".encode())
        return digest.hexdigest()

    def _frame(
        self,
        spark: SparkSession,
        dataset: Dataset,
        files: Mapping[PartitionKey, Sequence[Inspected]],
        tolerance: Tolerance | None,
    ) -> DataFrame:
        """The rows of these files; rejected rows go to `tolerance`.

        Raises BadInput where this process reads the files and rows are refused, or more rows than are tolerated.
        """
        columns = (*dataset.schema.columns, *dataset.partition_columns)
        schema, reading = arrow_schema(columns), reading_of(dataset)
        pieces = [
            FilePiece(source_of(dataset, file.uri), tuple(plain(value) for value in key.values), file.size)
            for key, files_of_partition in files.items()
            for file in files_of_partition
        ]
        if sum(piece.size for piece in pieces) <= self.bytes_for_spark:
            rows = _table(dataset, pieces, reading, schema, tolerance)
            # Spark does not accept a table without batches.
            return spark.createDataFrame(rows if rows.num_rows else [], spark_schema(columns))
        from pyspark import cloudpickle

        # With all modules of the package.
        cloudpickle.register_pickle_by_value(formats_package)  # type: ignore[no-untyped-call]
        shares = _shares(pieces)
        numbers = spark.range(0, len(shares), 1, len(shares))
        if tolerance is None:
            return numbers.mapInArrow(tasks.in_task(shares, reading, schema), spark_schema(columns))
        # The files are read twice: a job returns only one table, and the good rows must not wait in memory.
        tolerance.look(numbers, shares, reading)
        return numbers.mapInArrow(tasks.in_task(shares, reading, schema, without_rejected=True), spark_schema(columns))


def _inspect_all(dataset: Dataset, uris: Sequence[str]) -> dict[str, Inspected | None]:
    """The result of `inspect` for each of these files. Raises BadInput with all that cannot be taken."""

    def looked_at(uri: str) -> Inspected | BadInput | None:
        try:
            return inspect(dataset, uri)
        except BadInput as error:
            return error

    with ThreadPoolExecutor(_THREADS) as pool:
        results = dict(zip(uris, pool.map(looked_at, uris), strict=True))
    _raise_all([result for result in results.values() if isinstance(result, BadInput)])
    return {uri: result for uri, result in results.items() if not isinstance(result, BadInput)}


def _raise_all(errors: Sequence[BadInput]) -> None:
    """Raise one error for all of them, which blames the partitions of each; nothing where there is none."""
    if errors:
        more = f" {counted(len(errors) - 1, 'other file')} of this run cannot be taken either." if errors[1:] else ""
        is_known = all(error.partitions for error in errors)
        blamed = {path for error in errors for path in error.partitions} if is_known else ()
        raise BadInput(f"{errors[0]}{more}", partitions=blamed)


def _files_read(growth: Growth, files: Sequence[Inspected]) -> list[Inspected]:
    """The files of a partition that a run reads: the last ones of `files`, after the ones whose rows it keeps."""
    return [] if growth.fold else list(files[len(files) - len(growth.files) :])


def source_of(dataset: Dataset, uri: str) -> FileSource:
    """The format and the compression of a file, by its name."""
    options = dataset.landing_options
    # A file whose name shows no format is read as CSV, which is the most common one.
    kind = options.format_of(uri) or LandingFormat.CSV
    # Its text, and not the constant: Spark's workers have no Varve, and could not make the constant again.
    return FileSource(uri, kind.value, split_compression(uri)[1])


def reading_of(dataset: Dataset) -> FileReading:
    """How the files of a dataset are read, as a value for Spark's workers, which have no Varve."""
    options = dataset.landing_options
    kinds = arrow_schema(dataset.schema.columns)
    return FileReading(
        tuple(
            DeclaredColumn(column.name, str(column.type), kind, column.nullable)
            for column, kind in zip(dataset.schema.columns, kinds.types, strict=True)
        ),
        separator=options.separator,
        quote=options.quote,
        encoding=options.encoding,
        header=options.header.value,
        nulls=frozenset(options.null),
        ended=options.last_line == "ended",
        extra=options.extra_columns == "ignore",
        keys=tuple(
            DeclaredColumn(column.name, str(column.type), arrow_type(column.type), nullable=False)
            for column in dataset.partition_columns
            # Keys of other types are left out, as the declaration does not say how a partner writes an hour or a week.
            if column.type in {ColumnType.DATE, ColumnType.INT, ColumnType.BIGINT}
            or (
                (dimension := dataset.partitioning[column.name]).value_type is str
                and not isinstance(dimension, TimeDimension)
            )
        ),
        spelling=texts.Spelling(
            options.decimal, options.thousands, options.date_format, options.timestamp_format, options.timezone
        ),
    )


def inspect(dataset: Dataset, uri: str) -> Inspected | None:
    """Inspect a whole file without parsing its rows; None where there is no file. Raises BadInput."""
    files, path = open_files(uri)
    refuse_link_out(dataset, uri)
    digest = new_fingerprint()
    source, reading = source_of(dataset, uri), reading_of(dataset)
    head, last, size = b"", b"", 0
    try:
        # Reading a pipe would wait for ever, and a device has no end.
        if (kind := files.info(path)["type"]) != "file":
            kind_text = "a directory" if kind == "directory" else "something else"
            raise BadInput(
                f"{uri} ({dataset}): {kind_text} lies where a file is expected. {NOTHING_LOST} Remove it.",
                partitions=_blamed(dataset, uri),
            )
        with files.open(path, "rb") as file:
            while block := file.read(BLOCK):
                head, last, size = head or block, block, size + len(block)
                digest.update(block)
            _refuse_head(head, source, reading)
            file.seek(0)
            formats.look(file, source, reading)
            if source.unit == "line" and not source.compression:
                refuse_unended(last, reading)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise BadInput(
            f"{uri} ({dataset}) may not be read: {error.strerror or error}. {NOTHING_LOST} "
            "Give the user whom Varve runs as the right to read it.",
            partitions=_blamed(dataset, uri),
        ) from error
    except BadFile as error:
        raise _refused(dataset, uri, str(error)) from error
    return Inspected(uri, size, digest.hexdigest())


def explain_bad_row(build: Build, error: str) -> BadInput | None:
    """The error of a Spark job as an error of file, line and column; None where it was not about a landing row."""
    marked = re.search(f"{MARK}([0-9a-f]+){MARK}", error)
    if not marked or not build.dataset.landing:
        return None
    return _explained(build.dataset, source_of(build.dataset, bytes.fromhex(marked[1]).decode()))


def problems_of(dataset: Dataset, source: FileSource) -> Iterator[RowProblem]:
    """All problems of a file, in order. Raises BadFile."""
    files, path = open_files(source.uri)
    key = _key_of(dataset, source.uri)
    values = {} if key is None else {name: plain(value) for name, value in key.fields}
    with files.open(path, "rb") as file:
        for chunk in formats.chunks(file, source, reading_of(dataset), values):
            yield from chunk.problems


def _key_of(dataset: Dataset, uri: str) -> PartitionKey | None:
    """The partition that the name of a file gives; None where it is no file of the dataset."""
    try:
        return listing.pattern_of(dataset).key(uri.partition(f"/{dataset.db}/{dataset.table}/")[2])
    except (UnknownPartition, OutsideDimension):
        return None


def _blamed(dataset: Dataset, uri: str) -> list[str]:
    """The path of a file's partition, for an error about the file."""
    return [] if (key := _key_of(dataset, uri)) is None else [key.path]


def _explained(dataset: Dataset, source: FileSource) -> BadInput:
    try:
        problems = list(itertools.islice(problems_of(dataset, source), _PROBLEMS_COUNTED))
    except BadFile as error:
        return _refused(dataset, source.uri, str(error))
    except OSError as error:
        return _refused(dataset, source.uri, f"it changed while it was read: {error}.")
    if not problems:
        return _refused(dataset, source.uri, "it changed while it was read.")
    listed = some([problem.message(source.unit) for problem in problems], limit=_PROBLEMS_TOLD)
    return BadInput(
        f"{source.uri} ({dataset}): {listed}. {NOTHING_LOST} Ask the partner to send it again; "
        "when it arrives its partition runs by itself.",
        partitions=_blamed(dataset, source.uri),
    )


def _refuse_head(head: bytes, source: FileSource, reading: FileReading) -> None:
    """Raise BadFile for an empty file, and for UTF-16 where UTF-8 is expected."""
    if not head:
        header = source.format == "csv" and reading.header != "none"
        raise BadFile(f"the file is empty{', without even a header line' if header else ''}.")
    text = source.unit == "line" and not source.compression and reading.encoding.lower().replace("_", "-") == "utf-8"
    if text and head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadFile("the file is UTF-16; UTF-8 is expected.")


def _refused(dataset: Dataset, uri: str, problem: str) -> BadInput:
    return BadInput(
        f"{uri} ({dataset}): {problem} {NOTHING_LOST} Ask the partner to send it again.",
        partitions=_blamed(dataset, uri),
    )


def _table(
    dataset: Dataset, pieces: Sequence[FilePiece], reading: FileReading, schema: pa.Schema, tolerance: Tolerance | None
) -> pa.Table:
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    errors: list[BadInput] = []
    for piece in pieces:
        rejected: list[RowProblem] | None = None if tolerance is None else []
        try:
            batches += tasks.file_batches(piece, reading, schema, rejected)
            if tolerance is not None and rejected:
                tolerance.add(piece, rejected)
        except (BadRows, BadFile):
            errors.append(_explained(dataset, piece.source))
        except BadInput as error:
            errors.append(BadInput(str(error), partitions=_blamed(dataset, piece.source.uri)))
    _raise_all(errors)
    return pa.Table.from_batches(batches, schema)


def _shares(pieces: Sequence[FilePiece]) -> list[list[FilePiece]]:
    """The pieces in about equal shares, each the work of one task."""
    size = sum(piece.size + _BYTES_TO_OPEN for piece in pieces)
    count = max(1, min(size // _BYTES_A_TASK, len(pieces), _MOST_TASKS))
    shares_of_pieces: list[list[FilePiece]] = [[] for _ in range(count)]
    for number, piece in enumerate(sorted(pieces, key=lambda piece: -piece.size)):
        shares_of_pieces[number % count].append(piece)
    return shares_of_pieces


def _refuse_changed(build: Build, files: Iterable[Inspected]) -> None:
    for file in files:
        now = inspect(build.dataset, file.uri)
        if now is None or now.fingerprint != file.fingerprint:
            raise BadInput(
                f"{file.uri} ({build.dataset}) changed while it was read. {NOTHING_LOST} "
                "Run the partition again; the arrival sensor does so by itself.",
                partitions=_blamed(build.dataset, file.uri),
            )
