"""One file of a landing dataset as the declaration has it: its format, how it is read, its partition, and its errors.

Not here: whether it keeps to the declaration (inspection.py, bad_rows.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput, OutsideDimension, UnknownPartition, counted
from varve.model.landing.options import LandingFormat, split_compression
from varve.model.partitions.time_dimension import TimeDimension
from varve.model.schema import ColumnType
from varve.sources.formats.file_reading import DeclaredColumn, FileReading, FileSource
from varve.sources.formats.texts import Spelling
from varve.sources.landing import listing
from varve.stores.frames import arrow_schema, arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey


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
        spelling=Spelling(
            options.decimal, options.thousands, options.date_format, options.timestamp_format, options.timezone
        ),
    )


def key_of(dataset: Dataset, uri: str) -> PartitionKey | None:
    """The partition that the name of a file gives; None where it is no file of the dataset."""
    try:
        # The path of the landing folder itself may have folders of these names.
        return listing.pattern_of(dataset).key(uri.rpartition(f"/{dataset.db}/{dataset.table}/")[2])
    except (UnknownPartition, OutsideDimension):
        return None


def blamed(dataset: Dataset, uri: str) -> list[str]:
    """The path of a file's partition, for an error about the file."""
    return [] if (key := key_of(dataset, uri)) is None else [key.path]


def refused(dataset: Dataset, uri: str, problem: str) -> BadInput:
    """The error of a file as a whole; `problem` is a sentence."""
    return BadInput(
        f"{uri} ({dataset}): {problem} {NOTHING_LOST} Ask the partner to send it again.",
        partitions=blamed(dataset, uri),
    )


def raise_all(errors: Sequence[BadInput]) -> None:
    """Raise one error for all of them, which blames the partitions of each; nothing where there is none."""
    if errors:
        more = f" {counted(len(errors) - 1, 'other file')} of this run cannot be taken either." if errors[1:] else ""
        is_known = all(error.partitions for error in errors)
        blamed = {path: str(error) for error in reversed(errors) for path in error.partitions}
        raise BadInput(f"{errors[0]}{more}", partitions=blamed if is_known else ())
