"""The rows of many scopes in one Spark job: the scopes become a table of the dataset's query (scope_join.py).

12 to 40 times cheaper than a query for each scope (measured over 359 scopes of 336,776 rows), and the same rows. Where
the query has no such form, the scopes LATERAL JOIN the whole of it, and Spark decorrelates that by itself; where it
refuses to, or shared_query.py does, each scope's query stands by itself with its values as literals, and one job runs
the union of them all.

Spark gets the author's text with what a run puts into it (names/written_query.py). Tables become the DataFrames of the
run's pinned inputs.

Not here: which partitions those are, and where rows go.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.sql.evaluate.constants import literal_text
from varve.sql.names.written_query import QueryPiece, text_of, written
from varve.sql.spark.plans import is_left_correlated, not_shared
from varve.sql.spark.refusals import problem_of
from varve.sql.spark.scope_join import SCOPES, ScopeNames, joined
from varve.sql.spark.shared_query import no_lateral
from varve.sql.syntax.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from varve.model.partitions.key import PartitionKey
    from varve.sql.names.visible import Columns
    from varve.sql.names.written_query import WrittenQuery
    from varve.sql.partitions.scopes import Scope, Scopes
    from varve.sql.syntax.sql_file import SqlDataset


def rows_of(
    spark: SparkSession,
    scopes: Scopes,
    query: exp.Query,
    keys: Sequence[PartitionKey],
    inputs: Mapping[str, DataFrame],
) -> DataFrame:
    """The query's rows for all of these partitions, with their partition columns; nothing runs yet.

    Args:
        spark: the session.
        scopes: of the dataset.
        query: its body, or an input of its foreign transformation.
        keys: the partitions.
        inputs: by dataset, what the query reads, for all of the partitions.
    """
    found = [scopes.of(key) for key in keys]
    together = together_rows(spark, scopes, query, found, inputs)
    return per_scope_rows(spark, scopes, query, found, inputs) if together is None else together


def together_rows(
    spark: SparkSession, scopes: Scopes, query: exp.Query, found: Sequence[Scope], inputs: Mapping[str, DataFrame]
) -> DataFrame | None:
    """All scopes in one join; None where Spark takes neither form, or makes other columns of it.

    What is wrong with the query itself is told by the query of one scope, which is asked next.
    """
    from pyspark.errors import AnalysisException

    text = written(scopes.dataset, query, _columns(inputs))
    names = ScopeNames.beside(text.text, scopes.partitioning.names)
    expected: list[tuple[str, str]] | None = None
    frames: dict[str, DataFrame] | None = None
    for pieces in forms(text, names):
        if expected is None or frames is None:
            one = alone(text, found[0])
            # How an input is read (in Python, by a join) is no part of the query: columns are enough here.
            empty = {name: spark.createDataFrame([], frame.schema) for name, frame in inputs.items()}
            try:
                expected = sql(spark, one, empty).dtypes
                if not_shared(explained(spark, one, empty)):
                    return None
            except AnalysisException:
                return None
            frames = {**inputs, SCOPES: scope_table(spark, scopes, found, names)}
        try:
            rows = sql(spark, pieces, frames)
            if rows.dtypes[len(names.keys) :] != expected or is_left_correlated(explained(spark, pieces, frames)):
                continue
        except AnalysisException:
            continue
        return rows.toDF(*scopes.partitioning.names, *rows.columns[len(names.keys) :])
    return None


def explained(spark: SparkSession, pieces: Sequence[QueryPiece], inputs: Mapping[str, DataFrame]) -> str:
    """What EXPLAIN EXTENDED says of a text; Spark optimises it for that. Raises AnalysisException where it cannot."""
    from pyspark.errors import AnalysisException

    said = str(sql(spark, [QueryPiece("EXPLAIN EXTENDED "), *pieces], inputs).collect()[0][0])
    # EXPLAIN tells of its own failures as if they were plans.
    if "AnalysisException" in said or "== Optimized Logical Plan ==" not in said:
        raise AnalysisException(said)
    return said


def forms(query: WrittenQuery, names: ScopeNames) -> Iterator[list[QueryPiece]]:
    """The query for all scopes in the forms that there are, the cheaper one first.

    The join first: where a side of an outer join names a scope, Spark decorrelates a LATERAL query into the product of
    all scopes and all rows (for a year of hourly rows 122 million).
    """
    if no_lateral(query.tree, query.variables):
        return
    if (pieces := joined(query, names)) is not None:
        yield pieces
    yield lateral(query, names)


def lateral(query: WrittenQuery, names: ScopeNames) -> list[QueryPiece]:
    """The scopes LATERAL JOIN the whole query."""
    rows = f"{names.table}_rows"
    inner = query.pieces([*query.inputs(), *query.bound(names.variable)])
    return [
        QueryPiece(f"SELECT {', '.join(names.key_columns)}, {rows}.* FROM "),  # noqa: S608 - names of ours around a query
        QueryPiece("", dataset=SCOPES),
        QueryPiece(f" AS {names.table}, LATERAL (\n"),
        *inner,
        QueryPiece(f"\n) AS {rows}"),
    ]


def alone(query: WrittenQuery, scope: Scope) -> list[QueryPiece]:
    """The query of one scope: its values as literals in the author's text."""
    return query.pieces([*query.inputs(), *query.bound(lambda name: literal_text(scope.values[name]))])


def running(scopes: Scopes, columns: Mapping[str, Sequence[str]], partition: PartitionKey | None) -> dict[str, str]:
    """What Spark runs for each query of a file, for people: of one partition, or of some one; and of many at once.

    Inputs have the names of their datasets here, and the table of the scopes is `varve.scopes`.
    """
    found: dict[str, str] = {}
    dataset = scopes.dataset
    scope = scopes.of(partition or scopes.sample)
    names = ["", *(each.name for each in dataset.using)][-len(dataset.queries) :]
    for name, query in zip(names, dataset.queries, strict=True):
        text = written(dataset, query, lambda each: columns.get(each))  # noqa: PLW0108 - typed
        of = f"USING {name}: " if name else ""
        found[f"{of}{scope.partition.path}"] = text_of(alone(text, scope), str)
        tables = ScopeNames.beside(text.text, scopes.partitioning.names)
        together = next(forms(text, tables), None)
        why = no_lateral(query, text.variables)
        title = "many partitions at once" + ("" if together else f": each by itself, because of {why}")
        found[f"{of}{title}"] = text_of(together, str) if together else ""
    return found


def per_scope_rows(
    spark: SparkSession,
    scopes: Scopes,
    query: exp.Query,
    found: Sequence[Scope],
    inputs: Mapping[str, DataFrame],
    *,
    partitions: bool = True,
) -> DataFrame:
    """The union of each scope's own query, with its partition columns or without; Spark runs them side by side."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F  # noqa: N812

    text = written(scopes.dataset, query, _columns(inputs))
    arms = []
    for scope in found:
        pieces = alone(text, scope)
        try:
            rows = sql(spark, pieces, inputs)
            names = rows.columns
        except (AnalysisException, ParseException) as error:
            raise _at_its_place(spark, scopes.dataset, text, pieces, inputs) or error from None
        keys = scopes.partition_values(scope.partition) if partitions else {}
        partition = [F.expr(literal_text(key)).alias(name) for name, key in keys.items()]
        arms.append(rows.select(*partition, *[F.col(f"`{name.replace('`', '``')}`") for name in names]))
    return united(arms)


def _at_its_place(
    spark: SparkSession,
    dataset: SqlDataset,
    query: WrittenQuery,
    pieces: Sequence[QueryPiece],
    inputs: Mapping[str, DataFrame],
) -> SqlError | None:
    """What Spark has against a text, at its place in the file; None where it has nothing against it now.

    It is asked again over views whose names are known: those that it gives to frames are its own, and of other lengths.
    """
    from pyspark.errors import AnalysisException, ParseException

    names = {each.dataset: f"varve_run_{uuid.uuid4().hex}" for each in pieces if each.dataset}
    try:
        for name, view in names.items():
            inputs[name].createOrReplaceTempView(view)
        try:
            assert spark.sql(text_of(pieces, names.__getitem__)).schema is not None
        except (AnalysisException, ParseException) as error:
            return SqlError(problem_of(spark, error, dataset.source, query.span, pieces, names))
    finally:
        for view in names.values():
            spark.catalog.dropTempView(view)
    return None


def united(arms: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames that have the same columns."""
    left = list(arms)
    while len(left) > 1:
        # By halves: a chain of a thousand unions overflows the analyzer's stack.
        pairs = [left[place : place + 2] for place in range(0, len(left), 2)]
        left = [pair[0].unionAll(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return left[0]


def sql(spark: SparkSession, pieces: Sequence[QueryPiece], inputs: Mapping[str, DataFrame]) -> DataFrame:
    """What Spark makes of a text with these inputs. Raises VarveError for a table that is no input."""
    names: dict[str, str] = {}
    for piece in pieces:
        if piece.dataset and piece.dataset not in inputs:
            raise VarveError(f"{piece.dataset} is no input of this query; those are {', '.join(inputs) or 'none'}.")
        if piece.dataset:
            names.setdefault(piece.dataset, f"varve_input_{len(names)}")
    # `spark.sql` puts frames into braces; those of the author are none, wherever they stand.
    escaped = [QueryPiece(each.text.replace("{", "{{").replace("}", "}}"), each.at, each.dataset) for each in pieces]
    text = text_of(escaped, lambda dataset: f"{{{names[dataset]}}}")
    if not names:
        return spark.sql(text_of(pieces, str))
    frames: dict[str, Any] = {name: inputs[dataset] for dataset, name in names.items()}
    return spark.sql(text, **frames)


def scope_table(spark: SparkSession, scopes: Scopes, found: Sequence[Scope], names: ScopeNames) -> DataFrame:
    """The scopes as a table: a column for each variable and each partition column, typed."""
    types = scopes.types
    kinds = {column.name: column.type for column in scopes.dataset.partition_columns}
    columns = [
        *((names.column(name), kind) for name, kind in types.items()),
        *zip(names.keys, (kinds[name] for name in scopes.partitioning.names), strict=True),
    ]
    rows = [
        (
            *(scope.values[name].value for name in types),
            *(scopes.partition_values(scope.partition)[name].value for name in scopes.partitioning.names),
        )
        for scope in found
    ]
    return spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in columns))


def _columns(inputs: Mapping[str, DataFrame]) -> Columns:
    known: dict[str, list[str]] = {}

    def of(dataset: str) -> list[str] | None:
        if dataset in inputs and dataset not in known:
            known[dataset] = inputs[dataset].columns
        return known.get(dataset)

    return of
