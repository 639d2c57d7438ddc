"""The problems of EXPECT as far as the text tells: names that are no columns, and conditions on several rows.

Not here: what Spark says of the conditions (spark/analysis.py), and what counts the rows that break them
(varve/dagster/assets/sql_rows.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest, some
from varve.sql.syntax.body import span_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset

# Aggregates that the parser takes for any other function. Of others of this kind `varve check` asks Spark.
_AGGREGATES = {"MEAN", "STD", "EVERY", "SOME", "TRY_SUM", "TRY_AVG"}


def expectation_problems(sql: SqlDataset, columns: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each name in EXPECT that is no column of the dataset, as far as the text tells.

    And for what is not of one row: a run counts the rows that break a condition while it writes them.
    """
    column_names = [*columns, *(column.name for column in sql.partition_columns)]
    lowered = {name.lower() for name in column_names}
    for expectation in sql.expectations:
        several = next(filter(_is_of_several_rows, expectation.expression.walk()), None)
        if several is not None and not several.find_ancestor(exp.Query):
            yield sql.problem(
                span_of(several) or expectation.span,
                f"{several.sql('spark')} is of several rows, and EXPECT {expectation.name} is asked of each row by "
                "itself. Leave it out, or make a dataset of it whose rows can be asked.",
            )
            continue
        if expectation.expression.find(exp.Lambda, exp.Query):
            continue
        for column in expectation.expression.find_all(exp.Column):
            if not column.table and isinstance(column.this, exp.Identifier) and column.name.lower() not in lowered:
                remedy = nearest(column.name, column_names) or f" It has {some(column_names)}."
                yield sql.problem(
                    span_of(column) or expectation.span, f"{sql.name} has no column {column.name}.{remedy}"
                )


def _is_of_several_rows(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _AGGREGATES
    if isinstance(node, exp.Any):
        # `LIKE ANY ('a%', 'b%')` is of one row.
        return not isinstance(node.parent, exp.Binary)
    return isinstance(node, exp.AggFunc | exp.Window)
