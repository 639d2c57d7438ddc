"""Errors of Spark over the rows of a run, such as a value that is no number, in one sentence and at their place.

Spark reports them while rows are written, long after it has accepted the query, and quotes the text that it was given.
Here they get the file, the line and the column of the author's text, and what can be written instead.

Not here: what Spark refuses before a run (refusals.py), and what is left of the build (varve/dagster/runs/failures.py).
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.schema import STANDS_THERE
from varve.sql.names.written_query import QueryPiece, author_place, text_of, written_query
from varve.sql.spark.execute import shared_query_forms, single_scope_query
from varve.sql.spark.scope_join import ScopeNames
from varve.sql.syntax.errors import Problem, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from varve.model.partitions.key import PartitionKey
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.spark.scope_join import ReadColumns

# `spark.sql` gives DataFrames names of these lengths: in classic mode, and on Spark Connect.
_NAME_LENGTHS = (len("_pyspark_") + 32, len("_pyspark_connect_temp_view_") + 32)
_NAME = re.compile(r"_pyspark_(?:connect_temp_view_)?[0-9a-f]{32}")
# The calls of this library are not those of an author.
_OWN = Path(__file__).parents[2]
# Where each scope has a query of its own, those of so many are looked through for the place of an error.
_MOST_SCOPES = 100


@dataclass(frozen=True, slots=True)
class _Fragment:
    """What Spark quotes of the text that it was given, and where in that text it stands."""

    start: int
    text: str


def run_message(error: Exception) -> str:
    """Return the sentence for an error that rows have caused; "" for an error of another kind."""
    from pyspark.errors import PySparkException

    for each in _with_causes(error):
        condition = str(each.getCondition() or "") if isinstance(each, PySparkException) else ""
        rule = _RULES.get(condition) or _RULES.get(condition.partition(".")[0])
        if rule is not None and isinstance(each, PySparkException):
            return _call_site(each) + rule(dict(each.getMessageParameters() or {}))
    return ""


def _raised(text: str) -> str:
    """What a query of the author says by RAISE_ERROR, or a check of the declaration."""
    return f"{text}." if STANDS_THERE in text else f"it says: {text}"


def run_problem(
    error: Exception,
    scopes: Scopes,
    keys: Sequence[PartitionKey],
    columns: Mapping[str, Sequence[str]],
    read: Sequence[ReadColumns] = ({},),
) -> str:
    """Return the sentence for an error that rows have caused, with its place in the file; "" for one of another kind.

    Args:
        error: what Spark has raised.
        scopes: the scopes of the dataset.
        keys: the partitions of the run.
        columns: by dataset, the columns that the query reads.
        read: of which partition columns it is known what the partitions read, for each query of the run.
    """
    message = run_message(error)
    if not message:
        return ""
    source = scopes.dataset.source
    span = _place(error, scopes, keys, columns, read)
    return f"{source.path}: {message}" if span is None else str(Problem(source, span, message))


def _place(
    error: Exception,
    scopes: Scopes,
    keys: Sequence[PartitionKey],
    columns: Mapping[str, Sequence[str]],
    read: Sequence[ReadColumns],
) -> Span | None:
    """Return the span of the file that Spark quotes; None where it quotes nothing, or nothing of the file."""
    fragments = [fragment for each in _with_causes(error) for fragment in _fragments(each)]
    for fragment in fragments:
        for pieces in _texts(scopes, keys, columns, read):
            for length in _NAME_LENGTHS:
                name = "x" * length
                text = text_of(pieces, lambda _, name=name: name)  # type: ignore[misc]
                end = fragment.start + len(fragment.text)
                if text[fragment.start : end] != fragment.text:
                    continue
                places = [author_place(pieces, lambda _, name=name: name, at) for at in (fragment.start, end - 1)]  # type: ignore[misc]
                if places[0] is not None and places[1] is not None:
                    return Span(places[0], max(places) + 1)  # type: ignore[type-var, operator]
    for fragment in fragments:
        # A text that was not looked through, such as the query of the thousandth scope.
        start = scopes.dataset.source.text.find(fragment.text)
        if start >= 0 and scopes.dataset.source.text.find(fragment.text, start + 1) < 0:
            return Span(start, start + len(fragment.text))
    return None


def _texts(
    scopes: Scopes, keys: Sequence[PartitionKey], columns: Mapping[str, Sequence[str]], read: Sequence[ReadColumns]
) -> Iterator[Sequence[QueryPiece]]:
    """Yield the texts that Spark may have been given: of many scopes together, of each scope, and those of EXPECT."""
    sql = scopes.dataset
    for expectation in sql.expectations:
        yield [QueryPiece("("), QueryPiece(expectation.text, expectation.at), QueryPiece("\n)")]
    for query in sql.queries:
        text = written_query(sql, query, columns.get)
        if scopes.axes:
            names = ScopeNames.beside(text.text, scopes.partitioning.names)
            for read_columns in read:
                yield from shared_query_forms(text, names, read_columns)
        for key in islice(keys, _MOST_SCOPES):
            yield single_scope_query(text, scopes.of(key))


def _call_site(error: Exception) -> str:
    """Return `file:line: ` of the call in Python that made the expression; "" where a text made it."""
    with contextlib.suppress(Exception):  # as below: what a context can tell depends on its kind
        for context in error.getQueryContext() or ():  # type: ignore[attr-defined]
            path, _, line = context.callSite().rpartition(":")
            if path and not Path(path).is_relative_to(_OWN):
                shown = Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else Path(path)
                return f"{shown}:{line}: "
    return ""


def _fragments(error: Exception) -> Iterator[_Fragment]:
    try:
        contexts = error.getQueryContext()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - an error of another kind has none
        return
    for context in contexts or ():
        try:
            fragment = _Fragment(context.startIndex(), _NAME.sub(lambda name: "x" * len(name[0]), context.fragment()))
        except Exception:  # noqa: BLE001, S112 - the context of a DataFrame has no place in a text
            continue
        if fragment.start >= 0 and fragment.text:
            yield fragment


def _with_causes(error: Exception) -> Iterator[Exception]:
    """Yield the error, and in classic mode also what has caused it in the JVM, as errors of PySpark."""
    yield error
    thrown = getattr(error, "java_exception", None)
    while thrown is not None:
        from pyspark.errors.exceptions.captured import CapturedException

        yield CapturedException(origin=thrown)
        thrown = thrown.getCause()


def _type(quoted: str) -> str:
    return quoted.replace('"', "").replace("`", "")


def _not_cast(given: Mapping[str, str]) -> str:
    target = _type(given.get("targetType", ""))
    return (
        f"the value {given.get('expression', '')} cannot be read as {target}. Write TRY_CAST(... AS {target}), which "
        "gives NULL for it, or leave such rows out."
    )


def _overflow(given: Mapping[str, str]) -> str:
    instead = _type(given.get("alternative", "")).replace("Use", "or use").strip(". ")
    return (
        "the result does not fit into its type. CAST to a wider one before counting, such as BIGINT or DECIMAL(38, 0)"
        f"{f', {instead}' if instead else ''}."
    )


def _no_element(function: str) -> Callable[[Mapping[str, str]], str]:
    return lambda given: (
        f"the array has {given.get('arraySize', '')} elements, and was asked for the one at {given.get('indexValue')}. "
        f"Write {function}, which gives NULL where there is none."
    )


_RULES: dict[str, Callable[[Mapping[str, str]], str]] = {
    "CAST_INVALID_INPUT": _not_cast,
    "CAST_OVERFLOW": lambda given: (
        f"the value {given.get('value', '')} of type {_type(given.get('sourceType', ''))} does not fit into "
        f"{_type(given.get('targetType', ''))}. CAST to a wider type, or write TRY_CAST, which gives NULL for it."
    ),
    "CANNOT_PARSE_TIMESTAMP": lambda given: (
        f"{given.get('message', '')}. TRY_TO_TIMESTAMP gives NULL for a text of another format."
    ),
    "CONVERSION_INVALID_INPUT": lambda given: (
        f"the value {given.get('str', '')} cannot be read as {_type(given.get('targetType', ''))} of the format "
        f"{given.get('fmt', '')}. {_type(given.get('suggestion', '')).upper()} gives NULL for it."
    ),
    "DATETIME_FIELD_OUT_OF_BOUNDS": lambda given: f"{given.get('rangeMessage', 'there is no such date')}.",
    "DIVIDE_BY_ZERO": lambda _: (
        "a division by zero. Write TRY_DIVIDE(a, b), or a / NULLIF(b, 0), which give NULL for it."
    ),
    "DUPLICATED_MAP_KEY": lambda given: f"the key {given.get('key', '')} stands twice in one map.",
    "FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH": lambda given: (
        f"the file {given.get('path', '')} has {given.get('column', 'a column').strip('[]')} as "
        f"{given.get('actualType', '')}, which cannot be read as {given.get('expectedType', '')}. Declare the "
        "type of the files."
    ),
    "INVALID_ARRAY_INDEX": _no_element("GET(array, index)"),
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": _no_element("TRY_ELEMENT_AT(array, index)"),
    "INVALID_FORMAT": lambda given: (
        f"the value {given.get('input', '')!r} does not have the format {given.get('format', '')!r}. TRY_TO_NUMBER "
        "gives NULL for it."
    ),
    "INVALID_INDEX_OF_ZERO": lambda _: "an index of 0: ELEMENT_AT counts from 1.",
    "INVALID_PARAMETER_VALUE": lambda given: (
        f"{_type(given.get('functionName', 'a function')).upper()} cannot take "
        f"{given.get('value') or given.get('charset', '')} as its {_type(given.get('parameter', 'argument'))}."
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": lambda given: (
        f"the value {given.get('value', '')} does not fit into DECIMAL({given.get('precision', '')}, "
        f"{given.get('scale', '')}). CAST to one with more digits, or write TRY_CAST, which gives NULL for it."
    ),
    "ARITHMETIC_OVERFLOW": _overflow,
    "REMAINDER_BY_ZERO": lambda _: "a remainder of a division by zero. TRY_MOD(a, b) gives NULL for it.",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": lambda _: (
        "a subquery that stands for one value has more than one row. Write an aggregate such as MAX, or LIMIT 1 behind "
        "an ORDER BY."
    ),
    "USER_RAISED_EXCEPTION": lambda given: _raised(given.get("errorMessage", "")),
}
