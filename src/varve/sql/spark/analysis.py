"""What Spark's own analyzer says of a file: its queries over empty tables with the declared columns. No job runs.

Types that only Spark can tell are compared here with the declared ones; so are those that were inferred, as a guess
that was wrong would be worse than none.

Not here: what is known without Spark (types/inference.py), and which files have been looked at (cache.py).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest
from varve.model.schema import ColumnType
from varve.sql.checks.problems import fits
from varve.sql.evaluate.constants import literal_text
from varve.sql.names.visible import is_repeated
from varve.sql.names.written_query import Edit, QueryPiece, text_of, written
from varve.sql.spark.execute import alone
from varve.sql.spark.refusals import problem_of
from varve.sql.syntax.errors import Problem
from varve.sql.syntax.type_names import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.dataset import Dataset
    from varve.sql.answers import Question
    from varve.sql.names.written_query import WrittenQuery
    from varve.sql.sql_asset import SqlAsset
    from varve.sql.syntax.errors import SourceFile, Span


def analysed(spark: SparkSession, found: SqlAsset) -> list[Problem]:
    """What stands against a file."""
    sql = found.sql
    names = {name: f"varve_check_{uuid.uuid4().hex}" for name in found.upstreams}
    try:
        for name, each in found.upstreams.items():
            _empty(spark, each).createOrReplaceTempView(names[name])
        if sql.query is not None:
            return [*_query(spark, found, sql.query, sql.span_of("AS"), names), *_expectations(spark, found)]
        inputs = (_query(spark, found, each.query, each.body, names, given=False) for each in sql.using)
        return [*(problem for using in inputs for problem in using), *_expectations(spark, found)]
    finally:
        for view in names.values():
            spark.catalog.dropTempView(view)


def columns_by_spark(spark: SparkSession, question: Question) -> dict[str, str] | Problem:
    """The columns of a SELECT with their types, upper case; or what Spark has against it."""
    sql = question.sql
    assert sql.query is not None
    names = {name: f"varve_check_{uuid.uuid4().hex}" for name in question.upstreams}
    try:
        for name, each in question.upstreams.items():
            _empty(spark, each).createOrReplaceTempView(names[name])
        text = written(sql, sql.query, lambda name: _names(question.upstreams[name]))
        pieces = alone(text, question.scopes.of(question.scopes.sample))
        kinds = _asked(spark, sql.source, sql.span_of("AS"), pieces, names)
    finally:
        for view in names.values():
            spark.catalog.dropTempView(view)
    if not isinstance(kinds, Problem) and (empty := [name for name, kind in kinds.items() if kind == "VOID"]):
        return sql.problem(
            sql.name_span,
            f"{empty[0]} is NULL in every row, and has no type; write CAST(NULL AS STRING) AS {empty[0]}.",
        )
    return kinds


def _query(
    spark: SparkSession, found: SqlAsset, query: exp.Query, span: Span, names: Mapping[str, str], *, given: bool = True
) -> Iterator[Problem]:
    """What stands against a query; with `given` its columns are those of the dataset."""
    scope = found.scopes.of(found.scopes.sample)
    text = written(found.sql, query, lambda name: _names(found.upstreams[name]) if name in found.upstreams else None)
    pieces = alone(text, scope)
    kinds = _asked(spark, found.source, span, pieces, names)
    if isinstance(kinds, Problem):
        yield kinds
        return
    yield from _captured(spark, found, text, names)
    if given:
        yield from _differences(found, kinds)


def _captured(spark: SparkSession, found: SqlAsset, query: WrittenQuery, names: Mapping[str, str]) -> Iterator[Problem]:
    """Bare names that Spark takes for a column where we took them for a variable.

    Each is left as it is written, and everything else is put in: a variable is what Spark then does not know.
    """
    from pyspark.errors import AnalysisException

    scope = found.scopes.of(found.scopes.sample)
    repeated = {each.alias.lower() for each in query.tree.find_all(exp.Alias) if is_repeated(each)}
    for mention in query.mentions:
        if query.text[mention.span.start] == ":":
            continue
        others = [each for each in query.mentions if each is not mention]
        # Under a name of ours, so that a variable of the result does not stand for the one that is looked at.
        edits = [
            Edit.of(
                each.span.start,
                each.span.end,
                literal_text(scope.values[each.name]) + (" AS `__varve`" if each.is_result else ""),
            )
            for each in others
        ]
        pieces = query.pieces([*query.inputs(), *edits])
        try:
            assert spark.sql(text_of(pieces, names.__getitem__)).schema is not None
        except AnalysisException as error:
            name = str((error.getMessageParameters() or {}).get("objectName", "")).strip("`").lower()
            unresolved = str(error.getCondition()).startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_MAP_KEY"))
            if unresolved and name == mention.name:
                continue
        if mention.name in repeated:
            continue
        yield found.sql.problem(
            mention.span,
            f"{mention.name} is a variable of the scope, but Spark sees a column of this name here; write "
            f":{mention.name} for the variable.",
        )


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
    if not found.sql.expectations:
        return
    view = f"varve_check_{uuid.uuid4().hex}"
    _empty(spark, found.dataset).createOrReplaceTempView(view)
    for each in found.sql.expectations:
        pieces = [
            QueryPiece("SELECT ("),
            QueryPiece(each.text, each.at),
            QueryPiece(f"\n) AS `{each.name}` FROM {view}"),
        ]
        kinds = _asked(spark, found.source, each.span, pieces, {found.dataset.name: view})
        if isinstance(kinds, Problem):
            yield kinds
        elif (kind := kinds[each.name]) not in {"BOOLEAN", "VOID"}:
            yield found.sql.problem(each.span, f"{each.name} is {kind}; what is expected is TRUE or FALSE.")
    spark.catalog.dropTempView(view)


def _asked(
    spark: SparkSession, source: SourceFile, span: Span, pieces: Sequence[QueryPiece], names: Mapping[str, str]
) -> dict[str, str] | Problem:
    """The types of a text's columns, upper case; or what Spark has against it, at its place."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        fields = spark.sql(text_of(pieces, names.__getitem__)).schema.fields
    except (AnalysisException, ParseException) as error:
        return problem_of(spark, error, source, span, pieces, names)
    return {field.name.lower(): _spelt(field.dataType.simpleString()) for field in fields}


def _spelt(kind: str) -> str:
    return "VOID" if kind == "void" else str(ColumnType(kind))


def _names(dataset: Dataset) -> list[str]:
    return [*dataset.schema.names, *(column.name for column in dataset.partition_columns)]


def _empty(spark: SparkSession, dataset: Dataset) -> DataFrame:
    columns: Sequence[tuple[str, object]] = [
        (column.name, column.type) for column in (*dataset.schema.columns, *dataset.partition_columns)
    ]
    return spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in columns))
