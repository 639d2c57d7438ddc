"""Which rows of an input matter to one partition, and which columns join it to others: what a sample is taken by.

What matters follows from the query by the rules that find the partitions that are read (varve/sql/pushdown/scans.py),
asked here about all columns. A sample may be of any rows: what cannot be said makes it larger or duller, never wrong.

Not here: reading the rows (sample.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.evaluate.constants import literal
from varve.sql.names.scope_variables import SCOPE
from varve.sql.partitions.dependencies import inference
from varve.sql.pushdown.scans import dependencies
from varve.testing.cases.targets import SqlTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.sql.evaluate.constants import Typed
    from varve.testing.cases.targets import Target


@dataclass(frozen=True)
class JoinedColumns:
    """Two columns of two datasets whose values a join compares."""

    dataset: str
    column: str
    other: str
    other_column: str


@dataclass(frozen=True)
class Relevance:
    """What is known about the rows that a partition reads.

    Attributes:
        conditions: for each dataset a condition in Spark SQL that the rows which matter meet; none where all may.
        joins: which columns are compared with which.
    """

    conditions: dict[str, str]
    joins: tuple[JoinedColumns, ...]


def relevance_of(target: Target, key: PartitionKey) -> Relevance:
    """Return what is known for one partition. Of a function it is that columns of one name and type may join."""
    if not isinstance(target, SqlTarget):
        return Relevance({}, tuple(_same_names([upstream.dataset for upstream in target.upstreams.values()])))
    asset = target.sql_asset
    columns = {
        name: {column.name: column.type.lower() for column in dataset.read_columns()}
        for name, dataset in asset.upstreams.items()
    }
    scope = asset.scopes.of(key).values
    alternatives: dict[str, list[str]] = {}
    joins: list[JoinedColumns] = []
    for query in inference(asset.sql, asset.scopes, asset.upstreams).queries:
        for scan in dependencies(query.tree, columns).scans:
            texts = [_bound(condition, scan.alias, scope) for condition in scan.conditions]
            alternatives.setdefault(scan.dataset, []).append(" AND ".join(f"({text})" for text in texts) or "TRUE")
        joins += _equalities(query.tree)
    return Relevance(
        {name: " OR ".join(f"({text})" for text in texts) for name, texts in alternatives.items()}, tuple(joins)
    )


def _bound(condition: exp.Expr, alias: str, scope: dict[str, Typed] | object) -> str:
    """A condition with the values of the scope, over the bare columns of its scan."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table == SCOPE:
            return literal(scope[node.name])  # type: ignore[index]
        if isinstance(node, exp.Column) and node.table == alias:
            return exp.column(exp.to_identifier(node.name, quoted=True))
        return node

    return condition.copy().transform(replaced).sql("spark")


def _equalities(tree: exp.Expr) -> Iterator[JoinedColumns]:
    """The columns that a query compares by `=`, as far as their tables are datasets themselves."""
    datasets = {
        table.alias_or_name.lower(): f"{table.db}.{table.name}".lower()
        for table in tree.find_all(exp.Table)
        if table.db
    }
    for equality in tree.find_all(exp.EQ):
        left, right = equality.this, equality.expression
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            left_dataset, right_dataset = datasets.get(left.table.lower()), datasets.get(right.table.lower())
            if left_dataset is not None and right_dataset is not None and left_dataset != right_dataset:
                yield JoinedColumns(left_dataset, left.name, right_dataset, right.name)
                yield JoinedColumns(right_dataset, right.name, left_dataset, left.name)


def _same_names(datasets: list[Dataset]) -> Iterator[JoinedColumns]:
    for one in datasets:
        types = {column.name: column.type for column in one.read_columns()}
        for other in datasets:
            if other is not one:
                for column in other.read_columns():
                    if types.get(column.name) == column.type and not column.type.nested:
                        yield JoinedColumns(one.name, column.name, other.name, column.name)
