"""The `Dataset` that a file declares, and the version of its code.

Not here: what is wrong with a file (problems.py).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pipeline_defs.model.dataset import Dataset
from pipeline_defs.model.errors import VarveError
from pipeline_defs.model.policy import OnUpstreamChange as PolicyOnChange
from pipeline_defs.model.policy import Policy
from pipeline_defs.model.schema import Column, ColumnType, Kind, Schema
from pipeline_defs.sql.body import reads_of
from pipeline_defs.sql.errors import SqlErrors
from pipeline_defs.sql.external import external_problems, is_landing, outside_of
from pipeline_defs.sql.foreign import foreign_problems, foreign_text
from pipeline_defs.sql.problems import declared_problems, type_problems
from pipeline_defs.sql.source import Body, ColumnDefinition, OnUpstreamChange, SqlDataset, TimeSeries

if TYPE_CHECKING:
    from sqlglot import exp

    from pipeline_defs.sql.planned import Inference
    from pipeline_defs.sql.scopes import Scopes


def code_version(sql: SqlDataset) -> str:
    """A hash of all that decides which rows come out; comments, owners and layout do not."""
    parts = [
        repr(sql.columns and [(each.name, each.type) for each in sql.columns]),
        repr([(each.name, each.type) for each in sql.partition_columns]),
        *(f"LET {each.name} = {_text(each.expression)}" for each in sql.lets),
        *(f"INSERT {each.name} = {_text(each.expression)}" for each in sql.inserts),
        repr([[each.variable, getattr(each, "tiling", None)] for each in sql.generators]),
        sql.body,
        sql.entry,
        repr(sorted(sql.options)),
        *(_text(query) for query in sql.queries),
        foreign_text(sql.entry),
    ]
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def dataset_of(sql: SqlDataset, scopes: Scopes, queries: Inference | None) -> Dataset:
    """The dataset that a file declares. Raises SqlErrors with what stands against it."""
    problems = [*foreign_problems(sql, queries), *external_problems(sql)]
    columns = []
    inferred = queries.queries[0].outputs if sql.query is not None and queries and not queries.findings else ()
    declared = sql.columns or tuple(
        ColumnDefinition(each.name, each.type.upper(), sql.name_span, nullable=each.nullable) for each in inferred
    )
    problems += type_problems(sql, inferred)
    for column in declared:
        try:
            kind = ColumnType(column.type)
        except VarveError:
            problems.append(
                sql.problem(
                    column.span,
                    f"no store has columns of type {column.type} yet; take one of {', '.join(Kind)}.",
                )
            )
            continue
        columns.append(Column(column.name, kind, column.comment, column.nullable))
    if not declared and (queries is None or not queries.findings):
        problems.append(
            sql.problem(
                sql.name_span, f"declare the columns: CREATE DATASET {sql.name} (column TYPE COMMENT 'what it means')."
            )
        )
    problems += declared_problems(sql)
    if problems:
        raise SqlErrors(problems)
    try:
        return Dataset(
            name=sql.name,
            partitioning=scopes.partitioning,
            schema=Schema(tuple(columns)),
            store=sql.store,
            comment=sql.comment,
            landing=is_landing(sql),
            owners=sql.owners,
            policy=_policy(sql),
            outside=outside_of(sql),
        )
    except VarveError as error:
        raise SqlErrors([sql.problem(sql.name_span, str(error))]) from None


def _policy(sql: SqlDataset) -> Policy:
    retention = next((each.retention for each in sql.generators if isinstance(each, TimeSeries)), None)
    held = sql.on_upstream_change is OnUpstreamChange.IGNORE
    return Policy(
        on_upstream_change=PolicyOnChange.HOLD if held else PolicyOnChange.REBUILD,
        refresh_last=sql.refresh_last,
        retention=retention,
        # A query of nothing but its scope can be computed as soon as its window is over.
        by_itself=sql.body in {Body.SELECT, Body.PYTHON, Body.SPARK} and not reads_of(sql),
    )


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", comments=False, normalize=True)
