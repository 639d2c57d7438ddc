"""What the footers of others' parquet files say, before their rows are read: whether they fit the declaration.

Spark gives NULL for a column that a file does not have. So it is for partitions from before the column was added; where
no file of the folder has it, the declaration is wrong.

Not here: files of our own (varve/stores/folders/footers.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from varve.model.errors import NOTHING_LOST, BadInput, some
from varve.model.external import ExternalTableKind
from varve.model.schema import ColumnType, Kind
from varve.services.files import open_files
from varve.stores.folders.footers import schema_and_rows
from varve.stores.folders.listing import listed_files
from varve.stores.frames import arrow_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.stores.folders.listing import ListedFile

_THREADS = 16
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}


def rows_by_footer(dataset: Dataset, files: Sequence[ListedFile], *, copied: bool = False) -> Mapping[ListedFile, int]:
    """The rows of each of these files.

    Raises BadInput where one is no parquet, where no file of the dataset's folder has a declared column, and where a
    column is of another type than declared; where the rows are `copied`, it may be a wider one.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        footers = dict(zip(files, pool.map(lambda file: _footer(dataset, file, copied=copied), files), strict=True))
    if footers:
        _refuse_unknown(dataset, files, {name for names, _ in footers.values() for name in names})
    return {file: rows for file, (_, rows) in footers.items()}


def _footer(dataset: Dataset, file: ListedFile, *, copied: bool) -> tuple[Sequence[str], int]:
    try:
        schema, rows = _schema_and_rows(file)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{dataset}: {file.uri} is no parquet file that can be read: {str(error).splitlines()[0]}. {NOTHING_LOST} "
            "Is it being written, or broken? It is taken when it is whole."
        ) from error
    types = {name.lower(): _stored(schema.field(place).type) for place, name in enumerate(schema.names)}
    wrong = [
        f"{column.name} is {there} there and declared {column.type}"
        for column in dataset.schema.columns
        if (there := types.get(column.name.lower())) is not None
        # Spark refuses other differences itself when it copies.
        and (_is_cut(there, column.type) if copied else not _fits(there, arrow_type(column.type)))
    ]
    if wrong:
        raise BadInput(f"{dataset}: {file.uri}: {some(wrong, limit=3)}. {NOTHING_LOST} Declare the types of the files.")
    return tuple(types), rows


def _refuse_unknown(dataset: Dataset, files: Sequence[ListedFile], seen: set[str]) -> None:
    """Raise BadInput for a declared column that neither `seen` nor any other file of the folder has."""
    wanted = {column.name.lower(): column.name for column in dataset.schema.columns}
    table = dataset.external
    if wanted.keys() <= seen or table is None or table.kind is not ExternalTableKind.PARQUET:
        return
    others = set(listed_files(table.name) or ()) - set(files)
    # A column that was added is in the newest files.
    for file in sorted(others, key=lambda each: (each.changed, each.inside), reverse=True):
        try:
            schema, _ = _schema_and_rows(file)
        except (OSError, ValueError):
            continue  # It is told when its own partition is taken.
        seen = seen | {name.lower() for name in schema.names}
        if wanted.keys() <= seen:
            return
    missing = [name for lower, name in wanted.items() if lower not in seen]
    raise BadInput(
        f"{dataset}: no file of {table} has a column {', '.join(missing)}; they have {some(sorted(seen), limit=20)}. "
        f"{NOTHING_LOST} Declare it by the name that it has in the files, or take it out of the declaration."
    )


def _schema_and_rows(file: ListedFile) -> tuple[Any, int]:
    files, place = open_files(file.uri)
    return schema_and_rows(files, place)


def _stored(kind: Any) -> Any:
    """The type that parquet has for an Arrow type: writers note in which of several forms they had it in memory."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _is_cut(there: Any, declared: ColumnType) -> bool:
    """Whether whole numbers of an Arrow type are too large for the declared one: Spark would cut off bits of some."""
    import pyarrow as pa

    if not pa.types.is_integer(there) or declared.kind not in _BITS:
        return False
    return bool(there.bit_width + pa.types.is_unsigned_integer(there) > _BITS[declared.kind])


def _fits(there: Any, declared: Any) -> bool:
    """Whether Spark reads a column of one Arrow type as the other; the unit of a timestamp does not matter."""
    import pyarrow as pa

    if pa.types.is_timestamp(there) and pa.types.is_timestamp(declared):
        return True
    return bool(there == declared) or pa.types.is_nested(declared)
