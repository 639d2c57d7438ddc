"""What only all clauses of a header together show: clauses that are missing, and clauses that exclude each other.

Not here: the contents of one clause (clauses/), and whether names and types fit (varve/sql/checks/problems.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.sql.syntax.external import LANDING
from varve.sql.syntax.sql_file import Body, TimeSeries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varve.sql.syntax.errors import Span


def combination_problems(fields: Mapping[str, Any], spans: Mapping[str, Span]) -> Iterator[tuple[Span, str]]:
    """What is wrong with a header all of whose clauses could be parsed, and where.

    `fields` are those of `SqlDataset` that were given, `spans` the places of the clauses.
    """
    body = fields["body"]
    yield from _partition_problems(fields, spans)
    if body is not Body.SELECT and not fields.get("columns"):
        yield (
            spans[body.upper()],
            (
                f"a dataset by {body.upper()} must declare its columns: CREATE DATASET {fields['name']} "
                "(column TYPE, ...)."
            ),
        )
    has_time = any(isinstance(generator, TimeSeries) for generator in fields.get("generators", ()))
    if "end_offset" in fields and not has_time:
        word = next(clause for clause in ("OPEN WINDOWS", "WINDOWS AHEAD") if clause in spans)
        yield spans[word], f"{word} counts windows of time, and no generator is a TIMESERIES."
    for wait in fields.get("waits", ()):
        if body is Body.EXTERNAL:
            yield wait.span, "WAIT is for what a query reads, and EXTERNAL reads no dataset; leave it out."
        elif wait.wait.deadline is not None and not has_time:
            yield (
                wait.span,
                (
                    "UNTIL counts from the end of a window, and no generator is a TIMESERIES; write AT LEAST or ALL "
                    "BUT without it."
                ),
            )
    yield from _time_policy_problems(fields, spans, body, has_time=has_time)
    if fields.get("forward_from") and not has_time:
        yield (
            spans["ON CODE CHANGE"],
            "FORWARD FROM names a window of time, and no generator is a TIMESERIES; write HOLD or REBUILD.",
        )
    if "incremental" in fields and body is not Body.EXTERNAL:
        yield (
            spans["INCREMENTAL"],
            "INCREMENTAL adds the rows of new landing files, and this dataset takes none: it is for EXTERNAL.",
        )
    landing = body is Body.EXTERNAL and dict(fields.get("options", ())).get("source", LANDING) == LANDING
    if "reject_into" in fields and not landing:
        yield (
            spans["REJECT UP TO"],
            (
                "REJECT UP TO belongs to landing files, EXTERNAL OPTIONS (source = 'landing'): other rows are of the "
                "declared types already."
            ),
        )
    if body in {Body.SELECT, Body.EXTERNAL} and "using" in fields:
        yield spans["USING"], f"USING belongs to PYTHON and SPARK; {body.upper()} has no inputs."


def _time_policy_problems(
    fields: Mapping[str, Any], spans: Mapping[str, Span], body: Body, *, has_time: bool
) -> Iterator[tuple[Span, str]]:
    """Whether SCHEDULE, CATCHUP and REBUILD WITHIN stand where something is computed, and windows are."""
    if body is Body.EXTERNAL:
        for word in ("SCHEDULE", "CATCHUP", "REBUILD WITHIN"):
            if word in spans:
                yield (
                    spans[word],
                    (
                        f"{word} is for what is computed, and this dataset only arrives: what comes is taken when it "
                        f"comes. Leave it out here; a dataset that reads {fields['name']} may have it."
                    ),
                )
        return
    for word in ("CATCHUP", "REBUILD WITHIN"):
        if word in spans and not has_time:
            yield (
                spans[word],
                f"{word} is about windows of time, and no generator is a TIMESERIES; leave it out.",
            )


def _partition_problems(fields: Mapping[str, Any], spans: Mapping[str, Span]) -> Iterator[tuple[Span, str]]:
    """Whether PARTITIONED BY and FOR are both given, or neither: a dataset without them has no partitions."""
    columns, generators = fields.get("partition_columns"), fields.get("generators")
    if generators and not columns:
        variables = ", ".join(generator.variable for generator in generators)
        yield (
            spans["FOR"],
            (
                f"FOR makes a partition for each {variables}, and PARTITIONED BY is missing; write for example "
                "PARTITIONED BY (day STRING), or take FOR out: without both the dataset is one table without "
                "partitions."
            ),
        )
    if columns and not generators:
        yield (
            spans["PARTITIONED BY"],
            (
                "FOR is missing: nothing says which partitions exist; write for example "
                "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01'), or take PARTITIONED BY out: without both the "
                "dataset is one table without partitions."
            ),
        )
    if "INSERT" in spans and not columns and not generators:
        yield (
            spans["INSERT"],
            (
                "INSERT gives the partition columns their values, and there is none; write PARTITIONED BY and FOR, or "
                "take INSERT out: the dataset is one table without partitions."
            ),
        )
    if "REFRESH LAST" in spans and not columns and not generators:
        yield (
            spans["REFRESH LAST"],
            (
                "REFRESH LAST counts windows of time, and the dataset has no partitions; take it out: it is computed "
                "again whenever what it reads changes."
            ),
        )
