"""`SqlAsset`: one file, understood. What loading needs of it is kept; the rest is read again when it is asked for.

Not here: how files are put together (sql_project.py), and where what is kept lies (cache.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.declaration import code_version
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import PlannedDependency, QueryPlan
from varve.sql.pushdown.relations import Scan
from varve.sql.pushdown.scans import Dependencies
from varve.sql.syntax.body import parsed, reads_of
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.dataset import Dataset
    from varve.planning.mapping.dimension_mapping import DimensionMapping
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.syntax.errors import SourceFile
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.types.cells import ColumnName
    from varve.sql.types.outputs import Output


@dataclass(frozen=True)
class KeptScan:
    """A mention of a dataset, with the conditions on it as text: reading a tree back costs more than making it."""

    dataset: str
    columns: Mapping[str, str]
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class CompiledDataset:
    """What is known of a file without looking into it again; of values that change only with the key it is kept under.

    Attributes:
        reads: the datasets that it reads, in the order in which it names them.
        outputs: what its query gives out; none where it is no SELECT.
        scans: for each of its queries what it reads.
        ways: by dataset that it reads, the rules that stand for the exact partitions in Dagster.
        columns: by dataset that it reads, the data columns that it may need; None where that is not certain: all.
        expectations: names and conditions.
        entry: the `module:function` that it names.
    """

    dataset: Dataset
    reads: tuple[str, ...]
    code_version: str
    outputs: tuple[Output, ...]
    scans: tuple[tuple[KeptScan, ...], ...]
    ways: Mapping[str, tuple[DimensionMapping, ...]]
    columns: Mapping[str, tuple[str, ...] | None]
    tags: tuple[tuple[str, str], ...]
    expectations: tuple[tuple[str, str], ...]
    entry: str


@dataclass(frozen=True, eq=False)
class SqlAsset:
    """A file, the dataset that it is, and those that it reads."""

    source: SourceFile
    kept: CompiledDataset
    upstreams: Mapping[str, Dataset] = field(repr=False)

    @property
    def dataset(self) -> Dataset:
        """The dataset that it is."""
        return self.kept.dataset

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets that it reads, each once."""
        return self.kept.reads

    @property
    def code_version(self) -> str:
        """A hash of all that decides which rows come out; comments, owners and layout do not."""
        return self.kept.code_version

    @property
    def lineage(self) -> dict[str, tuple[ColumnName, ...]]:
        """For each column of a SELECT the columns of datasets that its values are made of."""
        return {each.name: tuple(sorted(each.sources)) for each in self.kept.outputs}

    @cached_property
    def sql(self) -> SqlDataset:
        """What the file declares."""
        return parse(self.source)

    @cached_property
    def scopes(self) -> Scopes:
        """Its scopes."""
        return scopes_of(self.sql)

    @cached_property
    def plan(self) -> QueryPlan:
        """What its partitions read."""
        return QueryPlan(self.upstreams, lambda: (self.scopes, tuple(map(_restored, self.kept.scans))))

    def dependency(self, name: str) -> PlannedDependency:
        """What it reads of one dataset."""
        upstream = self.upstreams[name]
        return PlannedDependency(
            self.dataset.partitioning, upstream.partitioning,
            plan=self.plan, name=upstream.name, known_ways=self.kept.ways.get(name, ()),
        )  # fmt: skip


def kept_of(  # noqa: PLR0917
    sql: SqlDataset,
    scopes: Scopes,
    dataset: Dataset,
    queries: Inference,
    found: tuple[Dependencies, ...],
    upstreams: Mapping[str, Dataset],
) -> CompiledDataset:
    """What is worth keeping of a file with which nothing is wrong."""
    plan = QueryPlan(upstreams, lambda: (scopes, found))
    return CompiledDataset(
        dataset,
        reads_of(sql.queries),
        code_version(sql),
        queries.queries[0].outputs if sql.query is not None else (),
        tuple(tuple(map(_kept, each.scans)) for each in found),
        {
            name: PlannedDependency(dataset.partitioning, each.partitioning, plan=plan, name=name).dimension_mappings
            for name, each in upstreams.items()
        },
        {name: _needed(sql, queries, each) for name, each in upstreams.items()},
        sql.tags,
        tuple((each.name, each.text) for each in sql.expectations),
        sql.entry,
    )


def _needed(sql: SqlDataset, queries: Inference, upstream: Dataset) -> tuple[str, ...] | None:
    """The data columns of a dataset that the queries may need; None where that is not certain.

    Every name in a qualified query counts, whosever column it is. A star, but in COUNT(*), may stand for any column in
    the query as it is written, and a pivot groups by those that it does not name.
    """
    named: set[str] = set()
    for query, found in zip(sql.queries, queries.queries, strict=True):
        stars = any(not _counts_rows(each) for each in query.find_all(exp.Star))
        if found.findings or stars or query.find(exp.Pivot):
            return None
        named |= {column.name.lower() for column in found.tree.find_all(exp.Column)}
    return tuple(each.name for each in upstream.schema.columns if each.name.lower() in named)


def _counts_rows(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count) and star.parent.this is star and not star.parent.expressions


def _kept(scan: Scan) -> KeptScan:
    return KeptScan(scan.dataset, dict(scan.columns), tuple(each.sql("spark") for each in scan.conditions))


def _restored(scans: tuple[KeptScan, ...]) -> Dependencies:
    return Dependencies(
        tuple(
            Scan(
                place, kept.dataset, exp.to_table(kept.dataset), kept.columns,
                [parsed(each) for each in kept.conditions],
            )
            for place, kept in enumerate(scans)
        )
    )  # fmt: skip
