"""`SqlDataset`: the contents of a SQL file as values, before anything is evaluated.

Not here: the parser (header.py), the scopes (partitions/scopes.py), the schema and the dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from varve.model.dataset import StoreKind
from varve.model.policy import OnCodeChange

if TYPE_CHECKING:
    import datetime as dt

    import pendulum
    from sqlglot import exp

    from varve.model.landing.growth import Incremental
    from varve.model.landing.rejection import RejectInto
    from varve.model.partitions.calendar import Tiling
    from varve.model.partitions.key import Value
    from varve.model.partitions.set_source import SetSource
    from varve.model.reads import Wait
    from varve.model.store_options import Period
    from varve.sql.syntax.errors import Problem, SourceFile, Span


class Body(StrEnum):
    """Where the rows of a dataset come from."""

    SELECT = "select"
    EXTERNAL = "external"
    PYTHON = "python"
    SPARK = "spark"


class OnUpstreamChange(StrEnum):
    """What happens to a partition when one of its inputs is published again."""

    REBUILD = "rebuild"
    IGNORE = "ignore"


class Allowed(StrEnum):
    """What is an error unless the file allows it: `ALLOW FULL SCAN [OF table], CLOCK, RANDOM`."""

    FULL_SCAN = "full scan"
    CLOCK = "clock"
    RANDOM = "random"


@dataclass(frozen=True)
class ColumnDefinition:
    """A declared column. `type` is Spark SQL, upper case: `DECIMAL(10, 2)`.

    Attributes:
        was: its former name, which RENAMED FROM gives; "" where it has none.
    """

    name: str
    type: str
    span: Span
    comment: str = ""
    nullable: bool = True
    was: str = ""


@dataclass(frozen=True)
class TimeSeries:
    """`t IN TIMESERIES(...)`: a scope for each window of a tiling; binds `t` and `t_end`, its start and its end.

    Attributes:
        retention: how long a window is kept, from its start; None: forever.
        moves: whether it has no START of its own (`LAST 2 DAYS`): `start` then lies before all that is kept today.
    """

    variable: str
    tiling: Tiling
    start: pendulum.DateTime
    end: pendulum.DateTime | None
    retention: dt.timedelta | None
    span: Span
    moves: bool = field(default=False, compare=False, repr=False)

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
    """`carrier IN DYNAMIC 'carriers'`: a scope for each member of a set that grows while the pipeline runs.

    Attributes:
        source: the data that fill the set, by `FROM (SELECT ...)`.
        key: the expression of `source`, and `table` the dataset that it reads, each with its place in the file.
    """

    variable: str
    set_name: str
    span: Span
    source: SetSource | None = None
    key: exp.Expr | None = None
    table: Span | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it binds."""
        return (self.variable,)


Generator: TypeAlias = TimeSeries | ValueList | DynamicSet


@dataclass(frozen=True)
class Named:
    """A named expression of LET, INSERT or EXPECT. The meta of `expression` has the file's lines and columns.

    Attributes:
        text: the text of the expression; empty where it was not written.
        at: the offset at which that text begins.
    """

    name: str
    expression: exp.Expr
    span: Span
    text: str = ""
    at: int = 0


@dataclass(frozen=True)
class NamedRole:
    """A role of the warehouse's server that GRANT names, as it is written there."""

    name: str
    span: Span


@dataclass(frozen=True)
class NamedColumn:
    """A column that a clause names, as it is written there."""

    name: str
    span: Span


@dataclass(frozen=True)
class DeclaredIndex:
    """An index of `INDEX`: of these columns, in this order."""

    columns: tuple[NamedColumn, ...]
    unique: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, lower case."""
        return tuple(column.name.lower() for column in self.columns)


@dataclass(frozen=True)
class DeclaredWait:
    """A wait of WAIT, and the datasets of its OF with the span of each name; none: all that have no wait of their own.

    The span is that of the wait.
    """

    wait: Wait
    datasets: tuple[tuple[str, Span], ...]
    span: Span


@dataclass(frozen=True)
class DeclaredSchedule:
    """The cron expression of SCHEDULE, and its time zone; "" where none is named: that of the windows, else UTC."""

    cron: str
    timezone: str = ""


@dataclass(frozen=True)
class Using:
    """An input of a foreign transformation: `USING name AS (SELECT ...)`; `body` is the span of its query."""

    name: str
    query: exp.Query
    span: Span
    body: Span


@dataclass(frozen=True)
class SqlDataset:
    """What one SQL file declares.

    Attributes:
        name: `db.table`, lower case.
        is_view: whether it is EXTERNAL VIEW, whose files are read where they are.
        columns: the declared data columns; may be empty for a SELECT, whose columns are inferred.
        partition_columns: the partition columns in their declared order.
        full_scans: the datasets of `ALLOW FULL SCAN OF`, with the span of each name.
        query: the SELECT of the body, as the file has it; None for other bodies.
        forward_from: the date of `ON CODE CHANGE FORWARD FROM`; empty for HOLD and REBUILD.
        entry: what the body names: `module:function` or the path of a program; empty for a SELECT.
        using: the inputs of a foreign transformation.
        incremental: the settings of INCREMENTAL; None where the header does not have it.
        reject_into: how many rows of a landing partition may be unreadable, and the dataset that takes them.
        retain_batches: how long a sweep keeps a batch after it was replaced; None: as the sweep says.
        retain_last: how many replaced batches of each partition a sweep keeps.
        fresh_within: how long after the end of its window a partition is there, at most; None: nothing is said.
        grants: the roles that may select from the view, as they are written.
        waits: for how many partitions of the datasets that it reads a partition waits, and until when.
        indexes: the indexes of its period tables.
        compact: the period whose tables are put together into one when it is over.
        sorted_by: the columns by which the rows of each file are sorted.
        bounds: the columns whose lowest and highest value the catalog keeps for each batch.
        iceberg: whether it is an Iceberg table too; None: as the settings say.
        schedule: the ticks at which it is computed; None: as soon as there is a reason.
        catchup: whether windows are computed that were over before it was first deployed.
        rebuild_within: how long after a window a change of an input rebuilds it; None: always.
        rebuild_within_of: the datasets for which that is said, with the span of each name; none: all.
        end_offset: how many windows beyond the last complete one it has: 1 by OPEN WINDOWS, 1 + n by WINDOWS AHEAD n.
        spans: the span of each clause by its words, for problems that concern a clause.
    """

    source: SourceFile
    name: str
    name_span: Span
    body: Body
    comment: str = ""
    owners: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    store: str = StoreKind.LAKE
    is_view: bool = False
    columns: tuple[ColumnDefinition, ...] = ()
    partition_columns: tuple[ColumnDefinition, ...] = ()
    generators: tuple[Generator, ...] = ()
    lets: tuple[Named, ...] = ()
    inserts: tuple[Named, ...] = ()
    on_upstream_change: OnUpstreamChange = OnUpstreamChange.REBUILD
    on_code_change: OnCodeChange = OnCodeChange.HOLD
    forward_from: str = ""
    expectations: tuple[Named, ...] = ()
    refresh_last: int = 0
    end_offset: int = 0
    incremental: Incremental | None = None
    reject_into: RejectInto | None = None
    allows: frozenset[Allowed] = frozenset()
    full_scans: tuple[tuple[str, Span], ...] = ()
    retain_batches: dt.timedelta | None = None
    retain_last: int = 0
    fresh_within: dt.timedelta | None = None
    grants: tuple[NamedRole, ...] = ()
    waits: tuple[DeclaredWait, ...] = ()
    indexes: tuple[DeclaredIndex, ...] = ()
    compact: Period | None = None
    sorted_by: tuple[NamedColumn, ...] = ()
    bounds: tuple[NamedColumn, ...] = ()
    iceberg: bool | None = None
    schedule: DeclaredSchedule | None = None
    catchup: bool = True
    rebuild_within: dt.timedelta | None = None
    rebuild_within_of: tuple[tuple[str, Span], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    query: exp.Query | None = None
    entry: str = ""
    using: tuple[Using, ...] = ()
    spans: tuple[tuple[str, Span], ...] = field(default=(), repr=False)
    in_comment: bool = False

    @property
    def queries(self) -> tuple[exp.Query, ...]:
        """The queries that read other datasets: the body, or the inputs of a foreign transformation."""
        return (self.query,) if self.query is not None else tuple(using_query.query for using_query in self.using)

    @property
    def query_spans(self) -> tuple[Span, ...]:
        """The spans of those queries."""
        return (
            (self.span_of("AS"),) if self.query is not None else tuple(using_query.body for using_query in self.using)
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the scope's variables, in the order in which they are bound."""
        generated = [name for generator in self.generators for name in generator.variables]
        return (*generated, *(let.name for let in self.lets))

    def option(self, name: str) -> str | None:
        """Return the value of an option; None where it is not given."""
        return dict(self.options).get(name)

    def span_of(self, clause: str) -> Span:
        """Return the span of a clause; that of the dataset's name where there is none."""
        return dict(self.spans).get(clause, self.name_span)

    def problem(self, span: Span, message: str) -> Problem:
        """Return a problem at a place of the file."""
        from varve.sql.syntax.errors import Problem

        return Problem(self.source, span, message)

    def span_at(self, node: exp.Expr) -> Span:
        """Return the span of an expression, as far as the parser recorded it; else that of the body."""
        from varve.sql.syntax.body import span_of

        return span_of(node) or self.span_of("AS")

    def __str__(self) -> str:
        return self.name
