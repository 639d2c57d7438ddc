"""Asks Spark what a function gives for the values that partitions and scopes have: one query for each call.

Not here: which calls and values these are (partitions/value_questions.py), and where answers are kept (sql/values.py).
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from varve.sql.evaluate.vector import DOUBLE, KNOWN_TYPES, NULL, TIMESTAMP
from varve.sql.values import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.sql.evaluate.asked import TypedCall
    from varve.sql.partitions.value_questions import OpenCall, ValueQuestion

# Windows that begin in this time are asked for too, so that a plan knows them when they come; asked again is when less
# than half of it is left.
_AHEAD = dt.timedelta(days=2 * 366)
_COLUMN = "varve_value_{}"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO = dt.timedelta(microseconds=1)


def answers_by_spark(
    question: ValueQuestion, answers: Mapping[TypedCall, Answer], session: Callable[[], SparkSession], now: dt.datetime
) -> dict[TypedCall, Answer]:
    """Return the answers on all calls in the conditions of a file, also those that are there already.

    `session` is called only where something must be asked; it has the functions that the file calls.
    """
    calls = question.calls()
    known = {call: answer for call, answer in answers.items() if call[0] in calls}
    missing = {open_call.call for open_call in question.open_calls(known, now + _AHEAD / 2)}
    if not missing:
        return known
    # All their values are asked for again, so that those of partitions that are gone do not stay.
    answered, spark = {call: answer for call, answer in known.items() if call[0] not in missing}, session()
    while new := _new(question.open_calls(answered, now + _AHEAD), answered):
        for open_call in new:
            answer = values_by_spark(spark, open_call)
            answered[open_call.typed_call] = answer.with_values_of(answered.get(open_call.typed_call))
    return answered


def _new(open_calls: Sequence[OpenCall], answered: Mapping[TypedCall, Answer]) -> list[OpenCall]:
    """The open calls without the values for which there is an answer; those that have others."""
    new = []
    for open_call in open_calls:
        answer = answered.get(open_call.typed_call)
        rows = tuple(row for row in open_call.rows if answer is None or row not in answer.values)
        if rows and (answer is None or answer.gives):
            new.append(replace(open_call, rows=rows))
    return new


def values_by_spark(spark: SparkSession, asked: OpenCall) -> Answer:
    """Return the values of a call for all its arguments; an answer without values, which says why, where Spark fails.

    A session in UTC and in ANSI mode is assumed, as the runs have.
    """
    from pyspark.errors import PySparkException

    if asked.is_too_large:
        return Answer(asked.call, asked.types, why="it has too many values to ask Spark for")
    names = [_COLUMN.format(place) for place in range(len(asked.types))]
    try:
        # Moments travel as numbers: Python's have the time zone of the process.
        frame = spark.createDataFrame(
            [(place, *map(_sent, row)) for place, row in enumerate(asked.rows)],
            ", ".join(
                [
                    "varve_place int",
                    *(
                        f"{name} {'bigint' if kind == TIMESTAMP else kind}"
                        for name, kind in zip(names, asked.types, strict=True)
                    ),
                ]
            ),
        )
        arguments = [
            f"timestamp_micros({name}) AS {name}" if kind == TIMESTAMP else name
            for name, kind in zip(names, asked.types, strict=True)
        ]
        valued = frame.selectExpr("varve_place", *arguments).selectExpr(
            "varve_place", f"{asked.call.format(*names)} AS varve_value"
        )
        gives = valued.schema["varve_value"].dataType.simpleString()
        if gives not in KNOWN_TYPES or gives == NULL:
            return Answer(asked.call, asked.types, why=f"it gives {gives}, which is not compared before a run")
        if gives == TIMESTAMP:
            valued = valued.selectExpr("varve_place", "unix_micros(varve_value)")
        rows = valued.collect()
        if sorted(place for place, _ in rows) != list(range(len(asked.rows))):
            return Answer(asked.call, asked.types, why="it gives several rows for one value, or none")
        given = {asked.rows[place]: _received(gives, value) for place, value in rows}
    except PySparkException as error:
        return Answer(asked.call, asked.types, why=str(error).strip().splitlines()[0])
    if gives == DOUBLE and any(isinstance(value, float) and math.isnan(value) for value in given.values()):
        return Answer(asked.call, asked.types, why="it gives NaN, which compares otherwise in Spark")
    return Answer(asked.call, asked.types, gives, given)


def _sent(value: object) -> object:
    return (value - _EPOCH) // _MICRO if isinstance(value, dt.datetime) else value


def _received(kind: str, value: Any) -> object:
    return _EPOCH + dt.timedelta(microseconds=value) if kind == TIMESTAMP and value is not None else value
