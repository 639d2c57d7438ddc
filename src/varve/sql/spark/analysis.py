"""Runs Spark's own analyzer on a file: its queries over empty tables with the declared columns. No job runs.

Types that only Spark can tell are compared here with the declared ones. Inferred types are compared too, since a wrong
inference would be worse than none.

Not here: type inference without Spark (types/inference.py), and which files were checked before (cache.py).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import VarveError, nearest
from varve.model.schema import ColumnType
from varve.sql.checks.problems import fits
from varve.sql.evaluate.constants import literal_text
from varve.sql.names.own_functions import called_functions
from varve.sql.names.visible import is_self_named
from varve.sql.names.written_query import Edit, QueryPiece, text_of, written_query
from varve.sql.spark.execute import single_scope_query
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
    from varve.sql.syntax.sql_file import Named, SqlDataset


def analysis_problems(spark: SparkSession, asset: SqlAsset) -> list[Problem]:
    """Return the problems that Spark has with a file."""
    sql = asset.sql
    _register_types(spark, sql)
    names = {name: f"varve_check_{uuid.uuid4().hex}" for name in asset.upstreams}
    try:
        for name, upstream in asset.upstreams.items():
            _empty_frame(spark, upstream).createOrReplaceTempView(names[name])
        if sql.query is not None:
            return [
                *_query_problems(spark, asset, sql.query, sql.span_of("AS"), names),
                *_expectation_problems(spark, asset),
            ]
        inputs = (
            _query_problems(spark, asset, using_query.query, using_query.body, names, declares_columns=False)
            for using_query in sql.using
        )
        return [
            *(problem for input_problems in inputs for problem in input_problems),
            *_expectation_problems(spark, asset),
        ]
    finally:
        for view in names.values():
            spark.catalog.dropTempView(view)


def columns_by_spark(spark: SparkSession, question: Question) -> dict[str, str] | Problem:
    """Return the columns of a SELECT with their types, in upper case; or the problem that Spark has with it."""
    sql = question.sql
    assert sql.query is not None
    _register_types(spark, sql)
    names = {name: f"varve_check_{uuid.uuid4().hex}" for name in question.upstreams}
    try:
        for name, upstream in question.upstreams.items():
            _empty_frame(spark, upstream).createOrReplaceTempView(names[name])
        text = written_query(sql, sql.query, lambda name: _column_names(question.upstreams[name]))
        pieces = single_scope_query(text, question.scopes.of(question.scopes.sample))
        kinds = _column_types(spark, sql.source, sql.span_of("AS"), pieces, names)
    finally:
        for view in names.values():
            spark.catalog.dropTempView(view)
    if not isinstance(kinds, Problem) and (empty := [name for name, kind in kinds.items() if kind == "VOID"]):
        return sql.problem(
            sql.name_span,
            f"{empty[0]} is NULL in every row, and has no type; write CAST(NULL AS STRING) AS {empty[0]}.",
        )
    if not isinstance(kinds, Problem):
        unstored = [_not_stored(name, kind) for name, kind in kinds.items() if not _is_stored(kind)]
        return sql.problem(sql.name_span, " ".join(unstored)) if unstored else kinds
    return kinds


def _register_types(spark: SparkSession, sql: SqlDataset) -> None:
    """Tell Spark the types of the project's functions that a file calls; the analyzer needs no more, and nothing runs.

    Who runs a query registers the functions themselves before (varve/dagster/assets/sql_functions.py).
    """
    for function in called_functions(sql):
        spark.udf.register(function.name, lambda *_: None, function.returns)


def _query_problems(
    spark: SparkSession,
    asset: SqlAsset,
    query: exp.Query,
    span: Span,
    names: Mapping[str, str],
    *,
    declares_columns: bool = True,
) -> Iterator[Problem]:
    """Yield the problems of a query; with `declares_columns`, its columns must be those of the dataset."""
    scope = asset.scopes.of(asset.scopes.sample)
    text = written_query(
        asset.sql, query, lambda name: _column_names(asset.upstreams[name]) if name in asset.upstreams else None
    )
    pieces = single_scope_query(text, scope)
    kinds = _column_types(spark, asset.source, span, pieces, names)
    if isinstance(kinds, Problem):
        yield kinds
        return
    yield from _captured_names(spark, asset, text, names)
    if declares_columns:
        yield from _column_problems(asset, kinds)


def _captured_names(
    spark: SparkSession, asset: SqlAsset, query: WrittenQuery, names: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield a problem for each bare name that Spark resolves to a column although it was taken for a variable.

    Each mention in turn is left as it is written while all others are replaced: a real variable is then unknown to
    Spark.
    """
    from pyspark.errors import AnalysisException

    scope = asset.scopes.of(asset.scopes.sample)
    repeated = {alias.alias.lower() for alias in query.tree.find_all(exp.Alias) if is_self_named(alias)}
    for mention in query.mentions:
        if query.text[mention.span.start] == ":":
            continue
        other_mentions = [other_mention for other_mention in query.mentions if other_mention is not mention]
        # Aliased with a name of our own, so that another variable of the result cannot be mistaken for the mention
        # under test.
        edits = [
            Edit.of(
                other_mention.span.start,
                other_mention.span.end,
                literal_text(scope.values[other_mention.name]) + (" AS `__varve`" if other_mention.is_result else ""),
            )
            for other_mention in other_mentions
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
        yield asset.sql.problem(
            mention.span,
            f"{mention.name} is a variable of the scope, but Spark sees a column of this name here; write "
            f":{mention.name} for the variable.",
        )


def _column_problems(asset: SqlAsset, kinds: Mapping[str, str]) -> Iterator[Problem]:
    sql = asset.sql
    spans = {column.name.lower(): column.span for column in sql.columns}
    for column in asset.dataset.schema.columns:
        kind = kinds.get(column.name.lower())
        if kind is None:
            yield sql.problem(
                spans.get(column.name, sql.name_span),
                f"to Spark the query has no column {column.name}.{nearest(column.name, kinds)}",
            )
        elif not _is_stored(kind):
            yield sql.problem(spans.get(column.name, sql.name_span), _not_stored(column.name, kind))
        elif kind != "VOID" and not fits(kind, str(column.type)):
            yield sql.problem(
                spans.get(column.name, sql.name_span),
                f"{column.name} is declared {column.type}, but Spark says that the query gives {kind}; declare that, "
                f"or write CAST(... AS {column.type}) AS {column.name}.",
            )
    for output in asset.compiled.outputs:
        kind = kinds.get(output.name.lower())
        if (
            kind is not None
            and _is_stored(kind)
            and output.verified
            and UNKNOWN not in kind
            and ColumnType(output.type) != kind
        ):
            yield sql.problem(
                spans.get(output.name, sql.name_span),
                f"{output.name} was inferred to be {output.type.upper()}, but Spark says {kind}: please report the "
                "query; CAST makes it certain.",
            )


def _expectation_problems(spark: SparkSession, asset: SqlAsset) -> Iterator[Problem]:
    """Yield the problems of the EXPECT conditions, over the columns of the dataset."""
    if not asset.sql.expectations:
        return
    view = f"varve_check_{uuid.uuid4().hex}"
    _empty_frame(spark, asset.dataset).createOrReplaceTempView(view)
    for expectation in asset.sql.expectations:
        pieces = [
            QueryPiece("SELECT ("),
            QueryPiece(expectation.text, expectation.at),
            QueryPiece(f"\n) AS `{expectation.name}` FROM {view}"),
        ]
        kinds = _column_types(spark, asset.source, expectation.span, pieces, {asset.dataset.name: view})
        if isinstance(kinds, Problem):
            yield kinds
        elif (kind := kinds[expectation.name]) not in {"BOOLEAN", "VOID"}:
            yield asset.sql.problem(
                expectation.span, f"{expectation.name} is {kind}; what is expected is TRUE or FALSE."
            )
        elif not _is_of_one_row(spark, asset, expectation, view):
            yield asset.sql.problem(
                expectation.span,
                f"EXPECT {expectation.name} is asked of each row by itself, and this is of several rows. Leave it out, "
                "or make a dataset of it whose rows can be asked.",
            )
    spark.catalog.dropTempView(view)


def _is_of_one_row(spark: SparkSession, asset: SqlAsset, expectation: Named, view: str) -> bool:
    """Whether Spark takes a condition for one of a row, as WHERE wants it: no aggregate, no generator."""
    before = [QueryPiece("SELECT 1 AS one"), QueryPiece(f" FROM {view} WHERE (")]
    pieces = [*before, QueryPiece(expectation.text, expectation.at), QueryPiece("\n)")]
    kinds = _column_types(spark, asset.source, expectation.span, pieces, {asset.dataset.name: view})
    return not isinstance(kinds, Problem)


def _column_types(
    spark: SparkSession, source: SourceFile, span: Span, pieces: Sequence[QueryPiece], names: Mapping[str, str]
) -> dict[str, str] | Problem:
    """Return the types of a text's columns, in upper case; or the problem that Spark has with it, at its place."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        fields = spark.sql(text_of(pieces, names.__getitem__)).schema.fields
    except (AnalysisException, ParseException) as error:
        return problem_of(spark, error, source, span, pieces, names)
    return {field.name.lower(): _type_name(field.dataType.simpleString()) for field in fields}


def _type_name(kind: str) -> str:
    """Return the name of a type in upper case, also of one that no store has, as VARIANT or a text with a collation."""
    try:
        return str(ColumnType(kind))
    except VarveError:
        return kind.upper()


def _is_stored(kind: str) -> bool:
    """Whether a column of a dataset may have this type; of VOID others say that it is none."""
    try:
        return kind == "VOID" or bool(ColumnType(kind))
    except VarveError:
        return False


def _not_stored(name: str, kind: str) -> str:
    return f"{name} is {kind} to Spark, and no store has columns of this type; write CAST(... AS STRING) AS {name}."


def _column_names(dataset: Dataset) -> list[str]:
    return [*dataset.schema.names, *(column.name for column in dataset.partition_columns)]


def _empty_frame(spark: SparkSession, dataset: Dataset) -> DataFrame:
    columns: Sequence[tuple[str, object]] = [
        (column.name, column.type) for column in (*dataset.schema.columns, *dataset.partition_columns)
    ]
    return spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in columns))
