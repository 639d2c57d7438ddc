"""`SqlAsset`: one compiled SQL file. What loading needs is cached; the rest is parsed again when it is asked for.

Not here: how files are loaded together (sql_project.py), and where the cache is stored (cache.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from varve.model.partitions.dimension import DynamicDimension
from varve.model.reads import Wait
from varve.sql.code.foreign import shown_code
from varve.sql.code.version import code_version
from varve.sql.names.own_functions import named_functions, queried_functions
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import PlannedDependency, QueryPlan
from varve.sql.partitions.read_values import read_values
from varve.sql.pushdown.relations import Scan
from varve.sql.pushdown.scans import Dependencies
from varve.sql.syntax.body import parsed, reads_of
from varve.sql.syntax.header import parse
from varve.sql.syntax.lexer import tokens_within
from varve.sql.syntax.sql_file import TimeSeries
from varve.sql.values import stored_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.mapping.dimension_mapping import DimensionMapping
    from varve.sql.evaluate.asked import TypedCall
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.partitions.read_values import ReadValues
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.syntax.errors import SourceFile
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.types.cells import ColumnName
    from varve.sql.types.outputs import Output
    from varve.sql.values import Answer

# So many partitions are an example of those of a dataset.
_SOME = 32


@dataclass(frozen=True)
class CompiledScan:
    """A scan with its conditions as text: unpickling a tree costs more than parsing it again."""

    dataset: str
    columns: Mapping[str, str]
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class CompiledDataset:
    """The compiled form of a file, which loading uses without parsing it again.

    Its values change only with the key of the cache entry.

    Attributes:
        reads: the names of the datasets that it reads, in the order in which it names them.
        outputs: the columns of its query; empty where it is no SELECT.
        scans: for each of its queries, the scans of datasets.
        dimension_mappings: by upstream dataset, the rules that approximate the exact dependency for Dagster.
        waits: by upstream dataset, for how many of its partitions a partition waits.
        columns: by upstream dataset, the data columns that it may need; None: all of them, because it is not certain.
        expectations: the names and the conditions of EXPECT.
        entry: the `module:function` or program that it names.
        answers: what Spark said of the functions in its conditions, by call and types of its columns.
        asks: whether its conditions have such a function, answered or not.
    """

    dataset: Dataset
    reads: tuple[str, ...]
    code_version: str
    outputs: tuple[Output, ...]
    scans: tuple[tuple[CompiledScan, ...], ...]
    dimension_mappings: Mapping[str, tuple[DimensionMapping, ...]]
    waits: Mapping[str, Wait]
    columns: Mapping[str, tuple[str, ...] | None]
    tags: tuple[tuple[str, str], ...]
    expectations: tuple[tuple[str, str], ...]
    entry: str
    answers: Mapping[TypedCall, Answer]
    asks: bool


@dataclass(frozen=True, eq=False)
class SqlAsset:
    """A SQL file, the dataset that it declares, and the datasets that it reads."""

    source: SourceFile
    compiled: CompiledDataset
    upstreams: Mapping[str, Dataset] = field(repr=False)

    @property
    def dataset(self) -> Dataset:
        """The dataset that the file declares."""
        return self.compiled.dataset

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the datasets that it reads, without duplicates."""
        return self.compiled.reads

    @property
    def code_version(self) -> str:
        """A hash of everything that determines the rows; comments, owners and layout do not.

        Empty for a dataset that another project computes.
        """
        return "" if self.dataset.of_project else self.compiled.code_version

    @property
    def lineage(self) -> dict[str, tuple[ColumnName, ...]]:
        """For each column of a SELECT, the columns of datasets that its values are computed from."""
        return {output.name: tuple(sorted(output.sources)) for output in self.compiled.outputs}

    @property
    def code_text(self) -> str:
        """The file, and in comments behind it the project's functions and programs: what a plan shows as a diff."""
        lines: list[str] = []
        if named_functions(self.source):
            lines = [line for function in queried_functions(self.sql) for line in ("", *function.code.splitlines())]
        if code := shown_code(self.compiled.entry, self.source.root):
            lines += ["", *code.splitlines()]
        if not lines:
            return self.source.text
        return "\n".join([self.source.text.rstrip("\n"), *(f"-- {line}".rstrip() for line in lines), ""])

    @cached_property
    def sql(self) -> SqlDataset:
        """The parsed file."""
        return parse(self.source)

    @property
    def moves(self) -> bool:
        """Whether its series has no START: which windows there are follows from the day on which one asks."""
        return any(isinstance(generator, TimeSeries) and generator.moves for generator in self.sql.generators)

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of the dataset."""
        return scopes_of(self.sql)

    @cached_property
    def plan(self) -> QueryPlan:
        """The plan of what its partitions read."""
        return QueryPlan(
            self.upstreams,
            lambda: (self.scopes, tuple(map(_restored_scans, self.compiled.scans))),
            stored_values(self.compiled.answers),
        )

    def dependency(self, name: str) -> PlannedDependency:
        """Return its dependency on one upstream dataset."""
        upstream = self.upstreams[name]
        return PlannedDependency(
            self.dataset.partitioning, upstream.partitioning,
            plan=self.plan, name=upstream.name, known_mappings=self.compiled.dimension_mappings.get(name, ()),
        )  # fmt: skip

    def read_values(self, keys: Sequence[PartitionKey]) -> dict[str, ReadValues]:
        """Return, by input, which values of its partition columns each of several partitions reads.

        An input is left out where nothing is gained by it; see partitions/read_values.py.
        """
        if len(keys) < 2:
            return {}
        found = {name: read_values(self.upstreams[name], self.dependency(name), keys) for name in self.reads}
        return {name: values for name, values in found.items() if values is not None}

    def read_columns(self, keys: Sequence[PartitionKey]) -> dict[str, tuple[str, ...]]:
        """Return, by input, the partition columns of `read_values`."""
        return {name: tuple(values.types) for name, values in self.read_values(keys).items()}

    @property
    def some_partitions(self) -> list[PartitionKey]:
        """Its first theoretical partitions, as an example; none where they follow from the members of a set."""
        dimensions = self.dataset.partitioning.dimensions
        if any(isinstance(dimension, DynamicDimension) for dimension in dimensions):
            return []
        return list(islice(self.dataset.partitioning.keys(), _SOME))


def compile_dataset(  # noqa: PLR0917
    sql: SqlDataset,
    scopes: Scopes,
    dataset: Dataset,
    queries: Inference,
    dependencies: tuple[Dependencies, ...],
    upstreams: Mapping[str, Dataset],
    known_mappings: dict[str, tuple[DimensionMapping, ...]],
    answers: Mapping[TypedCall, Answer],
    *,
    asks: bool,
) -> CompiledDataset:
    """Return the compiled form of a file that has no problems.

    `answers` is what Spark said of calls in its conditions; `asks`: see CompiledDataset. `known_mappings` has the rules
    for Dagster of the files before, by what they follow from: many datasets of a project read in the same way.
    """
    plan = QueryPlan(upstreams, lambda: (scopes, dependencies), stored_values(answers))
    scans = tuple(tuple(map(_compiled_scan, query_scans.scans)) for query_scans in dependencies)
    places = {name: place for place, name in enumerate(upstreams)}
    what_is_read = [(upstream.partitioning, upstream.partition_columns) for upstream in upstreams.values()]
    how = [[(places[scan.dataset], scan.columns, scan.conditions) for scan in of_query] for of_query in scans]
    dimension_mappings = {}
    for name, upstream in upstreams.items():
        meaning = repr((places[name], dataset.partitioning, scopes.meaning, what_is_read, how, sorted(answers)))
        if meaning not in known_mappings:
            dependency = PlannedDependency(dataset.partitioning, upstream.partitioning, plan=plan, name=name)
            known_mappings[meaning] = dependency.dimension_mappings
        dimension_mappings[name] = known_mappings[meaning]
    return CompiledDataset(
        dataset,
        reads_of(sql.queries),
        code_version(sql),
        queries.queries[0].outputs if sql.query is not None else (),
        scans,
        dimension_mappings,
        {name: _wait(sql, name) for name in upstreams},
        {name: _columns_needed(sql, queries, upstream) for name, upstream in upstreams.items()},
        sql.tags,
        tuple((expectation.name, expectation.text) for expectation in sql.expectations),
        sql.entry,
        answers,
        asks,
    )


def _wait(sql: SqlDataset, upstream: str) -> Wait:
    """Return how long a partition waits for a dataset: as its own wait says, else the one for all, else for all."""
    own = [declared.wait for declared in sql.waits if upstream in dict(declared.datasets)]
    of_all = [declared.wait for declared in sql.waits if not declared.datasets]
    return next(iter([*own, *of_all]), Wait())


def _columns_needed(sql: SqlDataset, queries: Inference, upstream: Dataset) -> tuple[str, ...] | None:
    """Return the data columns of a dataset that the queries may need; None where that is not certain.

    Every name in a qualified query counts, whatever dataset its column belongs to, and every word of its text that is
    no alias: the parser does not keep each column as one, such as the unit of DATE_TRUNC(unit, moment). A star (except
    in COUNT(*)) may stand for any column in the query as it is written, and a pivot groups by the columns that it does
    not name.
    """
    named: set[str] = set()
    for query, span, inferred in zip(sql.queries, sql.query_spans, queries.queries, strict=True):
        stars = any(not _counts_rows(star) for star in query.find_all(exp.Star))
        if inferred.findings or stars or query.find(exp.Pivot):
            return None
        tokens = tokens_within(sql.source.text, span.start, span.end)
        named |= {token.text.lower() for before, token in pairwise(tokens) if before.token_type is not TokenType.ALIAS}
        named |= {column.name.lower() for column in inferred.tree.find_all(exp.Column)}
    return tuple(column.name for column in upstream.schema.columns if column.name.lower() in named)


def _counts_rows(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count) and star.parent.this is star and not star.parent.expressions


def _compiled_scan(scan: Scan) -> CompiledScan:
    return CompiledScan(scan.dataset, dict(scan.columns), scan.texts)


def _restored_scans(scans: tuple[CompiledScan, ...]) -> Dependencies:
    return Dependencies(
        tuple(
            Scan(
                place, scan.dataset, exp.to_table(scan.dataset), scan.columns,
                [parsed(condition) for condition in scan.conditions],
            )
            for place, scan in enumerate(scans)
        )
    )  # fmt: skip
