"""`SqlDataset`: what a SQL file says, as values; nothing here is evaluated yet.

Not here: how a file is read (header.py), its scopes (partitions/scopes.py), its schema and dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from varve.model.dataset import StoreKind

if TYPE_CHECKING:
    import datetime as dt

    import pendulum
    from sqlglot import exp

    from varve.model.landing.growth import Incremental
    from varve.model.landing.rejection import RejectInto
    from varve.model.partitions.calendar import Tiling
    from varve.model.partitions.key import Value
    from varve.sql.syntax.errors import Problem, SourceFile, Span


class Body(StrEnum):
    """Where the rows of a dataset come from."""

    SELECT = "select"
    EXTERNAL = "external"
    PYTHON = "python"
    SPARK = "spark"


class OnUpstreamChange(StrEnum):
    """What becomes of a partition when something that it was made from is published anew."""

    REBUILD = "rebuild"
    IGNORE = "ignore"


class Allowed(StrEnum):
    """What is an error unless the file says otherwise: `ALLOW FULL SCAN [OF table], CLOCK, RANDOM`."""

    FULL_SCAN = "full scan"
    CLOCK = "clock"
    RANDOM = "random"


@dataclass(frozen=True)
class ColumnDefinition:
    """A declared column. `type` is Spark SQL, upper case: `DECIMAL(10, 2)`."""

    name: str
    type: str
    span: Span
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True)
class TimeSeries:
    """`t IN TIMESERIES(...)`: a scope for each window of a tiling; binds `t` and `t_end`, its start and its end.

    Attributes:
        retention: how long a window is kept after it began; None: for ever.
    """

    variable: str
    tiling: Tiling
    start: pendulum.DateTime
    end: pendulum.DateTime | None
    retention: dt.timedelta | None
    span: Span

    @property
    def timezone(self) -> str:
        """The IANA zone of the windows."""
        return self.start.timezone_name or "UTC"

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it binds."""
        return (self.variable, f"{self.variable}_end")


@dataclass(frozen=True)
class ValueList:
    """`store IN ('Detroit', 'Paris')`: a scope for each value."""

    variable: str
    values: tuple[Value, ...]
    span: Span

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it binds."""
        return (self.variable,)


@dataclass(frozen=True)
class DynamicSet:
    """`carrier IN DYNAMIC 'carriers'`: a scope for each member of a set that grows while the pipeline runs."""

    variable: str
    set_name: str
    span: Span

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it binds."""
        return (self.variable,)


Generator: TypeAlias = TimeSeries | ValueList | DynamicSet


@dataclass(frozen=True)
class Named:
    """A name and an expression: of LET, INSERT or EXPECT. `expression` has the file's lines and columns in its meta.

    Attributes:
        text: the expression as it is written; empty where nobody wrote it.
        at: where that begins.
    """

    name: str
    expression: exp.Expr
    span: Span
    text: str = ""
    at: int = 0


@dataclass(frozen=True)
class Using:
    """An input of a foreign transformation: `USING name AS (SELECT ...)`; `body` is where its query stands."""

    name: str
    query: exp.Query
    span: Span
    body: Span


@dataclass(frozen=True)
class SqlDataset:
    """What one SQL file declares.

    Attributes:
        name: `db.table`, lower case.
        columns: the declared data columns; may be empty for a SELECT, whose columns are inferred.
        partition_columns: in their declared order.
        full_scans: the datasets of `ALLOW FULL SCAN OF`, and where they are named.
        query: the SELECT of the body, as the file has it; None for the other bodies.
        entry: what the body names: `module:function` or the path of a program; empty for a SELECT.
        using: the inputs of a foreign transformation.
        incremental: what INCREMENTAL says; None where the header does not have it.
        reject_into: how many rows of a landing partition may be unreadable, and the dataset that takes them.
        end_offset: how many windows beyond the last complete one it has: 1 by OPEN WINDOWS, 1 + n by WINDOWS AHEAD n.
        spans: where each clause stands, by its word: for problems that concern a clause.
    """

    source: SourceFile
    name: str
    name_span: Span
    body: Body
    comment: str = ""
    owners: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    store: str = StoreKind.LAKE
    columns: tuple[ColumnDefinition, ...] = ()
    partition_columns: tuple[ColumnDefinition, ...] = ()
    generators: tuple[Generator, ...] = ()
    lets: tuple[Named, ...] = ()
    inserts: tuple[Named, ...] = ()
    on_upstream_change: OnUpstreamChange = OnUpstreamChange.REBUILD
    expectations: tuple[Named, ...] = ()
    refresh_last: int = 0
    end_offset: int = 0
    incremental: Incremental | None = None
    reject_into: RejectInto | None = None
    allows: frozenset[Allowed] = frozenset()
    full_scans: tuple[tuple[str, Span], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    query: exp.Query | None = None
    entry: str = ""
    using: tuple[Using, ...] = ()
    spans: tuple[tuple[str, Span], ...] = field(default=(), repr=False)
    in_comment: bool = False

    @property
    def queries(self) -> tuple[exp.Query, ...]:
        """The queries that read other datasets: the body, or the inputs of a foreign transformation."""
        return (self.query,) if self.query is not None else tuple(each.query for each in self.using)

    @property
    def query_spans(self) -> tuple[Span, ...]:
        """Where those queries stand."""
        return (self.span_of("AS"),) if self.query is not None else tuple(each.body for each in self.using)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the scope's variables, in the order in which they are bound."""
        generated = [name for each in self.generators for name in each.variables]
        return (*generated, *(each.name for each in self.lets))

    def option(self, name: str) -> str | None:
        """The value of an option."""
        return dict(self.options).get(name)

    def span_of(self, clause: str) -> Span:
        """Where a clause stands; the dataset's name where it has none."""
        return dict(self.spans).get(clause, self.name_span)

    def problem(self, span: Span, message: str) -> Problem:
        """A problem at a place of the file."""
        from varve.sql.syntax.errors import Problem

        return Problem(self.source, span, message)

    def span_at(self, node: exp.Expr) -> Span:
        """Where an expression of the file stands, as far as the parser kept it; else the body."""
        from varve.sql.syntax.body import span_of

        return span_of(node) or self.span_of("AS")

    def __str__(self) -> str:
        return self.name
