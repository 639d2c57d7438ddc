"""What Spark's own analyzer says of a file: its queries over empty tables with the declared columns. No job runs.

Types that only Spark can tell are compared here with the declared ones; so are those that were inferred, as a guess
that was wrong would be worse than none.

Not here: what is known without Spark (inference.py), and which files have been looked at (cache.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_defs.model.schema import ColumnType
from pipeline_defs.sql.binding import bound
from pipeline_defs.sql.constants import literal
from pipeline_defs.sql.errors import Problem, nearest
from pipeline_defs.sql.execute import sql_of, statement
from pipeline_defs.sql.problems import fits
from pipeline_defs.sql.types import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.sql.asset import SqlAsset
    from pipeline_defs.sql.errors import Span


def analysed(spark: SparkSession, found: SqlAsset) -> list[Problem]:
    """What stands against a file."""
    sql = found.sql
    inputs = {name: _empty(spark, each) for name, each in found.upstreams.items()}
    if sql.query is not None:
        return [
            *_query(spark, found, sql.query, sql.span_of("AS"), inputs),
            *_expectations(spark, found),
        ]
    return [
        *(each for using in sql.using for each in _query(spark, found, using.query, using.span, inputs, given=False)),
        *_expectations(spark, found),
    ]


def _query(
    spark: SparkSession,
    found: SqlAsset,
    query: exp.Query,
    span: Span,
    inputs: Mapping[str, DataFrame],
    *,
    given: bool = True,
) -> Iterator[Problem]:
    """What stands against a query; with `given` its columns are those of the dataset."""
    values = found.scopes.of(found.scopes.sample).values
    tree = bound(query, set(values), lambda name: literal(values[name]))
    text, names = statement(tree, inputs)
    kinds = _asked(found, span, lambda: spark.sql(text, **names))
    if isinstance(kinds, Problem):
        yield kinds
    elif given:
        yield from _differences(found, kinds)


def _differences(found: SqlAsset, kinds: Mapping[str, str]) -> Iterator[Problem]:
    sql = found.sql
    spans = {column.name.lower(): column.span for column in sql.columns}
    for column in found.dataset.schema.columns:
        kind = kinds.get(column.name.lower())
        if kind is None:
            yield sql.problem(
                spans.get(column.name, sql.name_span),
                f"to Spark the query has no column {column.name}.{nearest(column.name, kinds)}",
            )
        elif kind != "VOID" and not fits(kind, str(column.type)):
            yield sql.problem(
                spans.get(column.name, sql.name_span),
                f"{column.name} is declared {column.type}, but Spark says that the query gives {kind}; declare that, "
                f"or write CAST(... AS {column.type}) AS {column.name}.",
            )
    for output in found.kept.outputs:
        kind = kinds.get(output.name.lower())
        if kind is not None and output.verified and UNKNOWN not in kind and ColumnType(output.type) != kind:
            yield sql.problem(
                spans.get(output.name, sql.name_span),
                f"{output.name} was inferred to be {output.type.upper()}, but Spark says {kind}: please report the "
                "query; CAST makes it certain.",
            )


def _expectations(spark: SparkSession, found: SqlAsset) -> Iterator[Problem]:
    """EXPECT over the columns of the dataset."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = _empty(spark, found.dataset)
    for each in found.sql.expectations:
        text, name = sql_of(each.expression), each.name
        kinds = _asked(found, each.span, lambda text=text, name=name: rows.select(F.expr(text).alias(name)))  # type: ignore[misc]
        if isinstance(kinds, Problem):
            yield kinds
        elif (kind := kinds[each.name]) not in {"BOOLEAN", "VOID"}:
            yield found.sql.problem(each.span, f"{each.name} is {kind}; what is expected is TRUE or FALSE.")


def _asked(found: SqlAsset, span: Span, frame: Callable[[], DataFrame]) -> dict[str, str] | Problem:
    """The types of a frame's columns, upper case; or what Spark has against it."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        fields = frame().schema.fields
    except (AnalysisException, ParseException) as error:
        told = str(error).strip().splitlines()[0].split("] ", 1)[-1].split(" SQLSTATE")[0]
        return found.sql.problem(span, f"Spark refuses it: {told}")
    return {field.name.lower(): _spelt(field.dataType.simpleString()) for field in fields}


def _spelt(kind: str) -> str:
    return "VOID" if kind == "void" else str(ColumnType(kind))


def _empty(spark: SparkSession, dataset: Dataset) -> DataFrame:
    columns: Sequence[tuple[str, object]] = [
        (column.name, column.type) for column in (*dataset.schema.columns, *dataset.partition_columns)
    ]
    return spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in columns))
