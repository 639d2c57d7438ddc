"""Which functions of a file's conditions Spark must be asked for, and for which values of partitions and scopes.

The planner itself is run over all partitions of the dataset, up to some time ahead, with a recorder in the place of
Spark's answers: what it asks for is what a plan will ask for.

Not here: how Spark is asked (spark/values.py), and where its answers are kept (sql/values.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.model.partitions.dimension import DynamicDimension
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import PartitionBox
from varve.sql.evaluate.asked import is_asked, rows_of
from varve.sql.evaluate.vector import KNOWN_TYPES, NULL, CannotEvaluate, Vector
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import QueryPlan, inference
from varve.sql.partitions.scan_reads import readings
from varve.sql.pushdown.asked_calls import with_asked_calls
from varve.sql.values import stored_values

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import exp

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension
    from varve.planning.mapping.partition_subset import KeySelection
    from varve.sql.evaluate.asked import TypedCall
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.values import Answer

# Of a call with more combinations of values than this, Spark is not asked.
MOST_VALUES = 50_000


@dataclass(frozen=True)
class OpenCall:
    """A call in a condition, and the values for which a plan needs it.

    Attributes:
        call: the call as it is written, with `{0}` ... for its columns.
        types: the Spark types of its columns.
        rows: the values of its columns; cut off where there are more than `MOST_VALUES`.
    """

    call: str
    types: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...] = field(repr=False)

    @property
    def typed_call(self) -> TypedCall:
        """What Spark is asked for."""
        return self.call, self.types

    @property
    def is_too_large(self) -> bool:
        """Whether there are more values than Spark is asked for."""
        return len(self.rows) > MOST_VALUES


@dataclass(frozen=True, eq=False)
class ValueQuestion:
    """A file in whose conditions there are functions that are not evaluated before a run."""

    parsed: Callable[[], SqlDataset]
    upstreams: Mapping[str, Dataset]

    def calls(self) -> set[str]:
        """The calls in the conditions of the file that Spark can be asked for."""
        sql = self.parsed()
        queries = inference(sql, scopes_of(sql), self.upstreams)
        return calls_of(dependencies_asked(sql, queries.dependencies, self.upstreams))

    def open_calls(self, answers: Mapping[TypedCall, Answer], now: dt.datetime) -> list[OpenCall]:
        """Return the calls that a plan up to `now` needs, with values of their columns that have no answer.

        Where one side of a condition has no value, the other side is not looked at: with the answers, there may be
        more to ask.
        """
        sql = self.parsed()
        scopes = scopes_of(sql)
        asked = dependencies_asked(sql, inference(sql, scopes, self.upstreams).dependencies, self.upstreams)
        if not calls_of(asked):
            return []
        recorder = Recorder(answers)
        plan = QueryPlan(self.upstreams, lambda: (scopes, asked), spark_values=recorder)
        bindings = plan.bindings([*_all_of(scopes.partitioning.dimensions, scopes, now).partitions()])
        upstreams = plan.upstream_partitions(None, any_member=True)
        for query_scans in asked:
            for _ in readings(query_scans, upstreams, bindings, now=now):
                pass
        return [OpenCall(call, types, tuple(rows)) for (call, types), rows in recorder.rows.items()]


def dependencies_asked(
    sql: SqlDataset,
    dependencies: Callable[[Mapping[str, Dataset], Callable[[exp.Expr], exp.Expr]], tuple[Dependencies, ...]],
    upstreams: Mapping[str, Dataset],
    wanted: Callable[[str], bool] = lambda _: True,
) -> tuple[Dependencies, ...]:
    """Return the scans of a file's queries, whose conditions have the calls that are wanted."""
    return dependencies(upstreams, lambda tree: with_asked_calls(tree, sql.source.text, wanted))


def may_ask(sql: SqlDataset, queries: Inference) -> bool:
    """Whether a file's queries have, anywhere, a call that Spark can be asked for."""
    text = sql.source.text
    return any(with_asked_calls(query.tree, text, lambda _: True) is not query.tree for query in queries.queries)


def calls_of(dependencies: Sequence[Dependencies]) -> set[str]:
    """The calls in conditions that Spark may be asked for, as they are written."""
    conditions = (condition for of_query in dependencies for scan in of_query.scans for condition in scan.conditions)
    return {node.expressions[0].name for condition in conditions for node in condition.walk() if is_asked(node)}


def _all_of(dimensions: Sequence[Dimension], scopes: Scopes, now: dt.datetime) -> PartitionBox:
    """All partitions of a dataset up to some time; of a set, whose members come later, a key that stands for them."""
    choices: list[KeySelection] = []
    for place, dimension in enumerate(dimensions):
        choice = () if isinstance(dimension, DynamicDimension) else everything(dimension, None, now)
        sample = PartitionBox.at(scopes.partitioning, scopes.sample).choices[place]
        choices.append(choice or sample)
    return PartitionBox(scopes.partitioning, tuple(choices))


class Recorder:
    """Says what is answered, and records the rest by call and types."""

    def __init__(self, answers: Mapping[TypedCall, Answer]) -> None:
        self.answers = answers
        self.stored = stored_values(answers)
        self.rows: dict[TypedCall, dict[tuple[object, ...], None]] = {}

    def of(self, call: str, arguments: Sequence[Vector]) -> Vector:
        """See SparkValues."""
        types = tuple(argument.type for argument in arguments)
        if (answer := self.answers.get((call, types))) is not None and not answer.gives:
            raise CannotEvaluate(None, answer.why)
        try:
            return self.stored.of(call, arguments)
        except CannotEvaluate:
            if all(kind in KNOWN_TYPES and kind != NULL for kind in types):
                rows = self.rows.setdefault((call, types), {})
                if len(rows) <= MOST_VALUES:
                    rows.update(dict.fromkeys(rows_of(arguments)[0]))
            raise
