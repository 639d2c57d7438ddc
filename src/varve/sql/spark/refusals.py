"""Turns an error of Spark into a problem at the place in the file that it concerns, which spans a few words at most.

Not here: the wording (messages.py), and which texts Spark is asked about (analysis.py, execute.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.sql.names.written_query import author_place, text_of
from varve.sql.spark.messages import functions_of, spark_message
from varve.sql.syntax.errors import Problem, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from varve.sql.names.written_query import QueryPiece
    from varve.sql.syntax.errors import SourceFile

_LINE = re.compile(r"line (\d+),? pos (\d+)")
_QUERY = re.compile(r"\s*(?:\(\s*)*(?:SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE)
# Errors for which Spark gives no place, or that of the whole query: the words to look for instead.
_WORDS = {
    "INVALID_WHERE_CONDITION": r"\bWHERE\b",
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": r"\bWHERE\b",
    "NUM_COLUMNS_MISMATCH": r"\b(?:UNION|EXCEPT|INTERSECT|MINUS)\b",
    "INCOMPATIBLE_COLUMN_TYPE": r"\b(?:UNION|EXCEPT|INTERSECT|MINUS)\b",
}
_COMMENT_OR_TEXT = re.compile(r"--[^\n]*|/\*(?!\+).*?\*/|'(?:[^'\\]|\\.)*'", re.DOTALL)


def problem_of(  # noqa: PLR0917
    spark: SparkSession,
    error: PySparkException,
    source: SourceFile,
    whole: Span,
    pieces: Sequence[QueryPiece],
    names: Mapping[str, str],
) -> Problem:
    """Return an error of Spark as a problem of the file; `names` maps datasets to their names in the text.

    Where Spark gives no place, the problem stands at the first word of `whole`.
    """
    span = place_of(error, pieces, names.__getitem__) or _first_word(source.text, whole)
    own = [function.name for function in source.functions]
    message = spark_message(error, {view: name for name, view in names.items()}, lambda: [*own, *functions_of(spark)])
    return Problem(source, span, message)


def place_of(error: PySparkException, pieces: Sequence[QueryPiece], name_of: Callable[[str], str]) -> Span | None:
    """Return the span of the file that an error concerns; None where Spark gives no place."""
    text = text_of(pieces, name_of)
    where = _in_text(error, text)
    if where is None:
        return None
    where = _narrowed(error, text, where)
    start, end = (author_place(pieces, name_of, offset) for offset in (where.start, max(where.start, where.end - 1)))
    if start is None:
        return None
    return Span(start, max(start, end if end is not None else start) + 1)


def _narrowed(error: PySparkException, text: str, where: Span) -> Span:
    """Return the span of the word in a query that causes the error; that of its first word where this is unknown."""
    fragment = text[where.start : where.end]
    if not _QUERY.match(fragment):
        return where
    condition = str(error.getCondition() or "").partition(".")[0]
    parameters = dict(error.getMessageParameters() or {})
    searched = _COMMENT_OR_TEXT.sub(lambda comment: " " * len(comment[0]), fragment)
    pattern = _WORDS.get(condition) or _WORDS.get(str(error.getCondition() or ""))
    if condition == "MISSING_AGGREGATION":
        name = re.split(r"[.`\"]+", parameters.get("expression", "").strip('"`'))[-1]
        pattern = rf"\b{re.escape(name)}\b" if name else None
    if condition == "UNRESOLVED_USING_COLUMN_FOR_JOIN":
        pattern = rf"\b{re.escape(parameters.get('colName', '').strip('`'))}\b"
    match = re.search(pattern, searched, re.IGNORECASE) if pattern else None
    if match is None:
        match = re.search(r"\w+", fragment)
    return Span(where.start + match.start(), where.start + match.end()) if match else where


def _in_text(error: PySparkException, text: str) -> Span | None:
    try:
        contexts = error.getQueryContext()
    except Exception:  # noqa: BLE001 - an error of another kind has none; the line is looked for instead
        contexts = []
    for context in contexts or []:
        try:
            start, stop = context.startIndex(), context.stopIndex()
        except Exception:  # noqa: BLE001, S112 - the context of a DataFrame has no place in a text
            continue
        if 0 <= start <= stop < len(text):
            return Span(start, stop + 1)
    if (line_match := _LINE.search(str(error))) is not None:
        lines = text.splitlines(keepends=True)
        line, column = int(line_match[1]), int(line_match[2])
        start = sum(map(len, lines[: line - 1])) + column
        if line <= len(lines) and start < len(text):
            word = re.match(r"\w+|.", text[start:])
            return Span(start, start + (len(word[0]) if word else 1))
    condition = str(error.getCondition() or "").partition(".")[0]
    if condition in {"MISSING_AGGREGATION", "UNRESOLVED_USING_COLUMN_FOR_JOIN"}:
        start = len(text) - len(text.lstrip())
        return Span(start, len(text))
    return None


def _first_word(text: str, span: Span) -> Span:
    match = re.search(r"\w+", text[span.start : span.end])
    return Span(span.start + match.start(), span.start + match.end()) if match else span
