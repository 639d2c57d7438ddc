"""Runs a test: its rows are the inputs of a run, whose rows pass the checks of a run and are compared.

The author's text is compiled, planned and executed by the code of runs (varve/dagster/assets/sql_rows.py), and so are
the checks: columns and types, partitions, EXPECT and expectations. Only the store is left out.

Not here: what is wrong with a test before it runs (bound.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.batch import BatchId, StagedBatch
from varve.model.build import Build
from varve.model.errors import BadInput, VarveError, VerifyFailed, counted
from varve.model.partitions.key import text_of
from varve.stores.expectations import audit_rows
from varve.stores.folders.write import outside_message, strays_of
from varve.stores.frames import (
    arrow_schema,
    conform,
    in_partitions,
    observed_by,
    spark_errors,
    spark_says,
    spark_schema,
    texts_of,
)
from varve.testing.cases.bound import BoundCase, UnusableCase
from varve.testing.cases.compare import difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.partitions.key import PartitionKey
    from varve.testing.cases.compare import Difference
    from varve.testing.cases.targets import Target, Upstream
    from varve.testing.files.case import Case

_MESSAGE_LINES = 20


@dataclass(frozen=True)
class Outcome:
    """What became of a test.

    Attributes:
        seconds: how long it took.
        message: why it failed; "" where it passed.
        difference: how its rows differ from those expected, where they do.
    """

    case: Case
    seconds: float
    message: str = ""
    difference: Difference | None = None

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return not self.message


def run(bound: BoundCase | UnusableCase, spark: SparkSession) -> Outcome:
    """Run one test in this session. Nothing is raised for a test that fails, whatever its dataset's code raises."""
    started = time.monotonic()
    if isinstance(bound, UnusableCase):
        return Outcome(bound.case, 0.0, bound.reason)
    message, differing = _outcome(bound, spark)
    return Outcome(bound.case, time.monotonic() - started, message, differing)


def _outcome(bound: BoundCase, spark: SparkSession) -> tuple[str, Difference | None]:
    case, dataset = bound.case, bound.target.dataset
    error = ""
    made: list[dict[str, Any]] = []
    try:
        made = rows_of_run(spark, bound.target, bound.keys, bound.inputs)
    except VarveError as raised:
        error = str(raised)
    except spark_errors() as raised:
        error = bound.target.row_error(bound.keys, raised) or spark_says(raised).strip()
    except Exception as raised:  # noqa: BLE001 - whatever a function of somebody else raises is the result of its test
        error = f"{type(raised).__name__}: {raised}"
    if case.fails is not None:
        if case.fails in error:
            return "", None
        instead = f"it failed with: {_cut(error)}" if error else f"it made {counted(len(made), 'row')}."
        return f"It was to fail with {case.fails!r}; {instead}", None
    if error:
        return _cut(error), None
    assert bound.expected is not None
    differing = difference(dataset, made, bound.expected, case.tolerance)
    if not differing:
        return "", None
    parts = [
        f"{len(rows)} {what}"
        for rows, what in (
            (differing.missing, "missing"), (differing.unexpected, "unexpected"), (differing.changed, "changed"),
        )
        if rows
    ]  # fmt: skip
    made_rows = f"{counted(differing.made, 'row')} {'was' if differing.made == 1 else 'were'} made"
    return f"{made_rows}, {differing.expected} expected: {', '.join(parts)}.", differing


def rows_of_run(
    spark: SparkSession,
    target: Target,
    keys: Sequence[PartitionKey],
    inputs: dict[str, list[dict[str, Any]]] | Any,
) -> list[dict[str, Any]]:
    """Return the rows that a run of these partitions would publish, made from these input rows.

    Raises BadInput for columns that do not fit and rows outside of the partitions, VerifyFailed for a broken EXPECT,
    ExpectationFailed for a broken expectation, and what the query or the function raises.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    dataset = target.dataset
    build = Build(dataset, tuple(keys), BatchId(0), "test", {})
    frames = {name: _frame(spark, upstream, inputs[name]) for name, upstream in target.upstreams.items()}
    watched_frame, expectations = target.rows(spark, keys, frames)
    fitted = conform(build, watched_frame)
    outside = Observation("partitions")
    counted = fitted.observe(
        outside, F.count(F.lit(1)).alias("rows"), F.count_if(~in_partitions(keys)).alias("outside")
    )
    # One Spark job: the observations are those of the job that computes the rows, as in a run.
    table = counted.toArrow()
    counts = observed_by(outside)
    if counts.get("outside"):
        raise BadInput(outside_message(build, counts["outside"], counts["rows"], strays_of(build, fitted)))
    if expectations is not None and (broken := target.broken(observed_by(expectations))):
        raise VerifyFailed(f"{dataset}: {broken}. A run would publish nothing.")
    if dataset.expectations:
        audit_rows(spark.createDataFrame(table, fitted.schema), build, _staged(keys, table))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _frame(spark: SparkSession, upstream: Upstream, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """The rows as the store would give them to the run: the columns that it asks for, then the partition columns."""
    import pyarrow as pa

    columns = upstream.dataset.read_columns(upstream.columns)
    values = [{column.name: row.get(column.name) for column in columns} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(values, arrow_schema(columns)), spark_schema(columns))


def _staged(keys: Sequence[PartitionKey], table: Any) -> list[StagedBatch]:
    from collections import Counter

    names = [name for name, _ in keys[0].fields]
    rows = Counter(tuple(text_of(row[name]) for name in names) for row in table.select(names).to_pylist())
    return [StagedBatch(key, "the test", rows[texts_of(key)], 0, 0) for key in keys]


def _cut(message: str) -> str:
    """A message without the many lines of a plan or a stack of the JVM."""
    lines = message.splitlines()
    left_out = len(lines) - _MESSAGE_LINES
    return "\n".join([*lines[:_MESSAGE_LINES], f"... and {left_out} more lines"]) if left_out > 0 else message
