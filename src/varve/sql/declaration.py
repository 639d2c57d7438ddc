"""The `Dataset` that a SQL file declares.

Not here: the problems of a file (checks/problems.py), and the version of its code (code/version.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.dataset import Dataset
from varve.model.errors import VarveError
from varve.model.partitions.schedule import Schedule
from varve.model.policy import OnUpstreamChange as PolicyOnChange
from varve.model.policy import Policy
from varve.model.schema import Column, ColumnType, Kind, Schema
from varve.sql.checks.expectations import expectation_problems
from varve.sql.checks.problems import (
    declared_problems,
    partition_problems,
    same_name_problems,
    type_problems,
    wait_problems,
)
from varve.sql.checks.storage import column_problems, lake_options, storage_problems, warehouse_options
from varve.sql.code.foreign import foreign_problems
from varve.sql.syntax.body import reads_of
from varve.sql.syntax.errors import SqlErrors
from varve.sql.syntax.external import external_of, external_problems, landing_of, project_of
from varve.sql.syntax.sql_file import Body, ColumnDefinition, OnUpstreamChange, SqlDataset, TimeSeries
from varve.sql.syntax.type_names import UNKNOWN, declared_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.sql.partitions.dependencies import Inference
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.types.outputs import Output


def dataset_of(
    sql: SqlDataset, scopes: Scopes, queries: Inference | None, upstreams: Mapping[str, Dataset] | None = None
) -> Dataset:
    """Return the dataset that a file declares. Raises SqlErrors with every problem in it."""
    problems = [*foreign_problems(sql, queries), *external_problems(sql), *storage_problems(sql), *wait_problems(sql)]
    columns = []
    inferred = queries.queries[0].outputs if sql.query is not None and queries and not queries.findings else ()
    # Only an author says NOT NULL: a column that is added later is NULL in every batch of before.
    declared = sql.columns or tuple(
        ColumnDefinition(output.name, declared_name(output.type), sql.name_span) for output in inferred
    )
    inherited = _inherited_comments(inferred, upstreams or {})
    problems += [*type_problems(sql, inferred), *same_name_problems(sql, inferred)]
    if not sql.columns:
        problems += partition_problems(sql, inferred)
    # Where the query has errors, nobody knows its columns.
    names = [column.name for column in declared]
    problems += [] if problems or not declared else [*expectation_problems(sql, names), *column_problems(sql, declared)]
    for column in declared:
        try:
            kind = ColumnType(column.type)
        except VarveError:
            problems.append(
                sql.problem(
                    column.span,
                    f"only Spark knows the type of {column.name}: declare it, as "
                    f"CREATE DATASET {sql.name} ({column.name} TYPE, ...)."
                    if UNKNOWN.upper() in column.type
                    else f"{column.name} is NULL in every row, and has no type; write CAST(NULL AS STRING) AS "
                    f"{column.name}."
                    if column.type == "VOID"
                    else f"no store has columns of type {column.type} yet; take one of {', '.join(Kind)}.",
                )
            )
            continue
        comment = column.comment or inherited.get(column.name.lower(), "")
        columns.append(Column(column.name, kind, comment, column.nullable, (column.was,) if column.was else ()))
    if not declared and (queries is None or not queries.findings):
        problems.append(
            sql.problem(
                sql.name_span, f"declare the columns: CREATE DATASET {sql.name} (column TYPE COMMENT 'what it means')."
            )
        )
    unknown = {sql.span_at(finding.node) for finding in queries.findings} if queries is not None else set()
    problems += declared_problems(sql, unknown)
    if problems:
        raise SqlErrors(problems)
    try:
        return Dataset(
            name=sql.name,
            partitioning=scopes.partitioning.reaching(sql.end_offset),
            schema=Schema(tuple(columns)),
            store=sql.store,
            comment=sql.comment,
            landing=landing_of(sql),
            owners=sql.owners,
            policy=_policy(sql),
            external=external_of(sql),
            of_project=project_of(sql),
            incremental=sql.incremental,
            reject_into=sql.reject_into,
            warehouse=warehouse_options(sql, names),
            lake=lake_options(sql, names),
        )
    except VarveError as error:
        # A problem with the file names concerns the option `files`.
        about_files = ": files: " in str(error) and sql.option("files")
        about_rejected = any(text in str(error) for text in (": reject into ", ": its rejected rows "))
        about = "OPTIONS files" if about_files else "REJECT INTO" if about_rejected else ""
        span = sql.span_of("INCREMENTAL" if "INCREMENTAL" in str(error) else about)
        raise SqlErrors([sql.problem(span, str(error))]) from None


def _inherited_comments(outputs: Iterable[Output], upstreams: Mapping[str, Dataset]) -> dict[str, str]:
    """Return the comments of the columns that a query passes on as they are, by their name in the result, lower case.

    Where a UNION passes on several columns, their comments must be the same.
    """
    written = {
        (name, column.name.lower()): column.comment
        for name, upstream in upstreams.items()
        for column in upstream.schema.columns
    }
    comments = {
        output.name.lower(): {written.get((dataset, column.lower()), "") for dataset, column in output.copy_of}
        for output in outputs
    }
    return {name: next(iter(texts)) for name, texts in comments.items() if len(texts) == 1}


def _policy(sql: SqlDataset) -> Policy:
    retention = next((generator.retention for generator in sql.generators if isinstance(generator, TimeSeries)), None)
    is_on_hold = sql.on_upstream_change is OnUpstreamChange.IGNORE
    return Policy(
        on_upstream_change=PolicyOnChange.HOLD if is_on_hold else PolicyOnChange.REBUILD,
        on_code_change=sql.on_code_change,
        forward_from=sql.forward_from,
        refresh_last=sql.refresh_last,
        retention=retention,
        retain_batches=sql.retain_batches,
        retain_last=sql.retain_last,
        schedule=_schedule(sql),
        catchup=sql.catchup,
        rebuild_within=sql.rebuild_within,
        rebuild_within_of=tuple(name for name, _ in sql.rebuild_within_of),
        fresh_within=sql.fresh_within,
        # A query that reads nothing but its scope can be computed as soon as its window is over.
        by_itself=sql.schedule is None
        and sql.body in {Body.SELECT, Body.PYTHON, Body.SPARK}
        and not reads_of(sql.queries),
    )


def _schedule(sql: SqlDataset) -> Schedule | None:
    """Return the schedule of a file, in the time zone of its windows where it names no other."""
    if sql.schedule is None:
        return None
    zones = [generator.timezone for generator in sql.generators if isinstance(generator, TimeSeries)]
    return Schedule(sql.schedule.cron, sql.schedule.timezone or next(iter(zones), "UTC"))
