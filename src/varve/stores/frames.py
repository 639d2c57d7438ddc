"""The schema of Varve in the words of Spark and Arrow, and a frame made to fit its dataset.

Not here: PostgreSQL's types (postgres/types.py).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, TypeVar

from varve.model.errors import NOTHING_LOST, BadInput, VarveError
from varve.model.partitions.key import plain, text_of
from varve.model.schema import DECIMAL_DIGITS, NO_VALUE, STANDS_THERE, Column, ColumnType, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import DataType, StructType

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey

_T = TypeVar("_T")
# Values as JSON that say all of them: Spark's own defaults leave out NULLs, and cut times to milliseconds.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Casts that lose nothing; any other difference between a frame and its declaration is refused by name.
_WIDENS: dict[Kind, frozenset[Kind]] = {
    Kind.TINYINT: frozenset({Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE}),
    Kind.SMALLINT: frozenset({Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE}),
    Kind.INT: frozenset({Kind.BIGINT, Kind.DOUBLE}),
    Kind.FLOAT: frozenset({Kind.DOUBLE}),
}
# The digits that the whole numbers need as decimals.
_WHOLE_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 19}


def folded(combine: Callable[[_T, _T], _T], parts: Sequence[_T]) -> _T:
    """As functools.reduce, but in pairs, pairs of pairs, and so on.

    Spark Connect cannot send what is nested deeper than some fifty levels: conditions on many columns or partitions,
    and unions of many frames. There must be one part at least.
    """
    while len(parts) > 1:
        pairs = [combine(parts[place], parts[place + 1]) for place in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[len(parts) - len(parts) % 2 :]]
    return parts[0]


def spark_schema(columns: Iterable[Column]) -> str:
    """The columns as a Spark DDL string, all nullable, with their comments."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def read_path(path: str) -> str:
    """The path of a file or folder for Spark to read, which takes some characters of a path for wildcards."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The columns as Spark writes them to parquet: timestamps in microseconds, UTC."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type that Spark gives to one of its own."""
    import pyarrow as pa

    simple = {
        Kind.STRING: pa.string(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TINYINT: pa.int8(),
        Kind.SMALLINT: pa.int16(),
        Kind.INT: pa.int32(),
        Kind.BIGINT: pa.int64(),
        Kind.FLOAT: pa.float32(),
        Kind.DOUBLE: pa.float64(),
        Kind.DATE: pa.date32(),
        Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
        Kind.BINARY: pa.binary(),
    }
    if kind.kind is Kind.DECIMAL:
        return pa.decimal128(*kind.digits)
    if kind.nested:
        parts = [(name, arrow_type(part)) for name, part in kind.parts]
        if kind.kind is Kind.STRUCT:
            return pa.struct(parts)
        types = [part for _, part in parts]
        return pa.list_(*types) if kind.kind is Kind.ARRAY else pa.map_(*types)
    return simple[kind.kind]


def spark_frame(rows: object, whose: str) -> DataFrame:
    """The rows that a function has returned. Raises BadInput where they are no DataFrame of Spark.

    `whose` function it is begins the message.
    """
    from pyspark.sql import DataFrame

    if isinstance(rows, DataFrame):
        return rows
    library, kind = type(rows).__module__.partition(".")[0], type(rows).__name__
    returned = {"NoneType": "nothing; is its `return` missing?"}.get(
        kind, f"{kind if library == 'builtins' else f'{kind} of {library}'}."
    )
    hint = " Make one of it: spark.createDataFrame(...)." if library in {"pandas", "pyarrow", "polars"} else ""
    raise BadInput(f"{whose} is to return a DataFrame of Spark, and returned {returned}{hint} {NOTHING_LOST}")


def conform(build: Build, frame: DataFrame) -> DataFrame:
    """The frame with exactly the dataset's data columns, then its partition columns, in the declared order and types.

    Names are the same whatever their case, as in Spark. A build of one partition may leave the partition columns out;
    they are then added. Raises BadInput with every column that is missing, unknown or of a type that does not widen to
    the declared one. A row without a value in a NOT NULL column ends the job that computes it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    dataset = build.dataset
    declared = (*dataset.schema.columns, *dataset.partition_columns)
    frame = _with_declared_case(declared, frame)
    if len(build.partitions) == 1:
        (only,) = build.partitions
        for column in dataset.partition_columns:
            if column.name not in frame.columns:
                frame = frame.withColumn(column.name, F.lit(plain(only[column.name])).cast(str(column.type)))
    if problems := _differences(declared, frame.schema):
        raise BadInput(f"{build}: the frame does not fit the declaration. {' '.join(problems)} {NOTHING_LOST}")
    # A cast that changes nothing is left out: Spark would quote it in the place of what the author of a query wrote.
    types = {column.name: str(column.type).lower() for column in declared}
    fits = {
        field.name for field in frame.schema.fields
        if field.dataType.simpleString() == types.get(field.name) and not field.metadata
    }  # fmt: skip
    # One text: with an object for each column, Spark's classic mode is asked six times for each.
    casts = {
        column.name: f"`{column.name}`" if column.name in fits else f"cast(`{column.name}` as {column.type})"
        for column in declared
    }
    return frame.selectExpr(*[
        f"{casts[column.name]} as `{column.name}`" if column.nullable or column in dataset.partition_columns
        else f"coalesce({casts[column.name]}, {_no_value(column, dataset.partitioning.names)}) as `{column.name}`"
        for column in declared
    ])  # fmt: skip


def _with_declared_case(declared: Sequence[Column], frame: DataFrame) -> DataFrame:
    """The frame with the names as they are declared, where they differ in case alone and each is there once."""
    names = {column.name.lower(): column.name for column in declared}
    given = [name.lower() for name in frame.columns]
    renamed = [names.get(name.lower(), name) for name in frame.columns]
    return frame if renamed == frame.columns or len(set(given)) < len(given) else frame.toDF(*renamed)


def text_as_decimal(text: str, kind: str) -> str:
    """Spark SQL of a text as a decimal; NULL where it has more digits after the point, which a cast would round."""
    scale = kind.rstrip(")").rpartition(",")[2]
    digits = f"replace(regexp_extract({text}, '[0-9.]+', 0), '.', '')"
    # Zeros at the end do not count, and of zero itself nothing does.
    significant = f"trim(TRAILING '0' FROM {digits})"
    after_point = f"length(regexp_extract({text}, '[.]([0-9]*)', 1)) - length({digits}) + length({significant})"
    exponent = f"coalesce(try_cast(regexp_extract({text}, '[eE](.*)', 1) AS INT), 0)"
    return f"CASE WHEN {significant} = '' OR {after_point} - {exponent} <= {scale} THEN try_cast({text} AS {kind}) END"


def exactly(column: Column, partition_columns: Sequence[str]) -> str:
    """Spark SQL of a column of texts as the whole numbers or decimals that are declared.

    A number that the type does not hold to the last digit ends the job that computes it, by column and partition.
    """
    text = f"`{column.name}`"
    decimal = column.type if column.type.kind is Kind.DECIMAL else ColumnType.decimal(DECIMAL_DIGITS)
    number = f"try_cast({text_as_decimal(text, str(decimal))} AS {column.type})"
    declared = f"concat(' is declared {column.type}, and ', {text}, '{STANDS_THERE}')"
    refused = _raised(column, declared, partition_columns)
    return f"CASE WHEN {text} IS NOT NULL THEN coalesce({number}, {refused}) END"


def _no_value(column: Column, partition_columns: Sequence[str]) -> str:
    """Spark SQL that ends a job, with the column and the partition of the row that has no value there."""
    return _raised(column, f"'{NO_VALUE}'", partition_columns)


def _raised(column: Column, message: str, partition_columns: Sequence[str]) -> str:
    """Spark SQL that ends a job with the name of a column, a message (also SQL), and the row's partition."""
    where = ", '/', ".join(f"'{name}=', coalesce(cast(`{name}` as string), 'NULL')" for name in partition_columns)
    of = f", ' of ', {where}" if where else ""
    quoted = column.name.replace("\\", "\\\\").replace("'", "\\'")
    return f"raise_error(concat('{quoted}', {message}{of}))"


def in_partitions(partitions: Sequence[PartitionKey]) -> SparkColumn:
    """Whether a row lies in one of the partitions; never NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    names = [name for name, _ in partitions[0].fields]
    if len(partitions) == 1:
        condition = F.lit(True)  # noqa: FBT003
        for name, value in partitions[0].fields:
            condition = condition & F.col(f"`{name}`").eqNullSafe(F.lit(plain(value)))
        return condition
    if len(names) == 1:
        return F.coalesce(F.col(f"`{names[0]}`").isin([plain(key[names[0]]) for key in partitions]), F.lit(False))  # noqa: FBT003
    # One IN over the joined spelling: a disjunction of thousands of conjunctions takes the analyzer minutes.
    spelt = F.concat_ws("\x1f", *[F.col(f"`{name}`").cast("string") for name in names])
    wanted = ["\x1f".join(map(text_of, partition.values)) for partition in partitions]
    return F.coalesce(spelt.isin(wanted), F.lit(False))  # noqa: FBT003


def partition_texts(names: Sequence[str]) -> list[SparkColumn]:
    """The partition columns of a frame as texts, under their own names, to group or select by.

    A row of them is `texts_of` its partition. Values are not: Spark gives back a TIMESTAMP in the zone of this process.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return [F.col(f"`{name}`").cast("string").alias(name) for name in names]


def texts_of(partition: PartitionKey) -> tuple[str, ...]:
    """The values of a partition as `partition_texts` spells them."""
    return tuple(map(text_of, partition.values))


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark's failures come as: classic mode hands on those that PySpark has no class for as they are."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


# What gRPC says over many lines of a call that did not come to its end.
_RPC = re.compile(r'status = StatusCode\.(\w+)\s+details = "(.*)"')


def spark_says(error: BaseException) -> str:
    """The message of such an error, without where in our process, or in Spark's, it came up."""
    thrown = getattr(error, "java_exception", None)
    text = str(error) if thrown is None else str(thrown.toString())
    if rpc := _RPC.search(text):
        status, details = rpc.groups()
        return f"{details} ({status})"
    return text.partition("\nJVM stacktrace:")[0].strip()


def observed_by(seen: Observation) -> dict[str, Any]:
    """What Spark observed, or nothing.

    Where Spark sees beforehand that there is no row, it takes the counts out of its plan with all else.
    """
    from py4j.protocol import Py4JJavaError

    try:
        return seen.get
    except Py4JJavaError as error:
        # So says Spark's classic mode of an observation without a value.
        if error.java_exception.getClass().getName() == "java.lang.AssertionError":
            return {}
        raise


def _differences(declared: Sequence[Column], actual: StructType) -> list[str]:
    types = {field.name: field.dataType for field in actual.fields}
    problems = []
    if missing := [f"{column.name} {column.type}" for column in declared if column.name not in types]:
        problems.append(f"Missing: {', '.join(missing)}.")
    names = {column.name for column in declared}
    if unknown := [f"{name} {kind.simpleString()}" for name, kind in types.items() if name not in names]:
        problems.append(f"Not declared: {', '.join(unknown)}.")
    problems.extend(
        f"{column.name} is declared {column.type}, found {types[column.name].simpleString().upper()}."
        for column in declared
        if column.name in types and not _fits(types[column.name], column.type)
    )
    return problems


def _fits(actual: DataType, declared: ColumnType) -> bool:
    from pyspark.sql.types import NullType

    if isinstance(actual, NullType):
        return True
    kind = column_type(actual)
    if kind is None or kind == declared:
        return kind is not None
    if declared.kind is not Kind.DECIMAL:
        return declared.kind in _WIDENS.get(kind.kind, frozenset())
    precision, scale = declared.digits
    if kind.kind is Kind.DECIMAL:
        return kind.digits[1] <= scale and kind.digits[0] - kind.digits[1] <= precision - scale
    return kind.kind in _WHOLE_DIGITS and _WHOLE_DIGITS[kind.kind] <= precision - scale


def column_type(spark_type: DataType) -> ColumnType | None:
    """The type of a frame's column in our words; None where a declaration has none for it."""
    from pyspark.sql import types

    if isinstance(spark_type, types.ArrayType):
        element = column_type(spark_type.elementType)
        return element and ColumnType.array(element)
    if isinstance(spark_type, types.MapType):
        key, value = column_type(spark_type.keyType), column_type(spark_type.valueType)
        return ColumnType.map(key, value) if key and value else None
    if isinstance(spark_type, types.StructType):
        fields = {field.name: column_type(field.dataType) for field in spark_type.fields}
        supported = {name: kind for name, kind in fields.items() if kind is not None}
        return ColumnType.struct(supported) if len(supported) == len(spark_type.fields) else None
    try:
        return ColumnType(spark_type.simpleString())
    except VarveError:
        return None


def described_location(rows: Iterable[Any]) -> str | None:
    """The folder of a table or of a partition, by the rows of its `DESCRIBE EXTENDED`; None where they name none.

    Its columns come first, one of which may be named `Location`; of a partition that of its table comes last.
    """
    details = itertools.dropwhile(lambda row: not str(row[0]).startswith("# Detailed "), rows)
    return next((str(row[1]) for row in details if row[0] == "Location"), None)
