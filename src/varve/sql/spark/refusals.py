"""What Spark has against a text that runs, at the place in the file that it is about, and never more than a few words.

Not here: the words for it (messages.py), and which texts Spark is asked about (analysis.py, execute.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.sql.names.written_query import author_place, text_of
from varve.sql.spark.messages import functions_of, told_by
from varve.sql.syntax.errors import Problem, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from varve.sql.names.written_query import QueryPiece
    from varve.sql.syntax.errors import SourceFile

_LINE = re.compile(r"line (\d+),? pos (\d+)")
_QUERY = re.compile(r"\s*(?:\(\s*)*(?:SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE)
# What Spark is silent about the place of, or tells as that of the whole query, by the word to look for.
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
    """What Spark has against a text, as a problem of the file; `names` are those that datasets have in the text.

    Where Spark does not say where, it is told at the first word of `whole`.
    """
    span = place_of(error, pieces, names.__getitem__) or _first_word(source.text, whole)
    said = told_by(error, {view: name for name, view in names.items()}, lambda: functions_of(spark))
    return Problem(source, span, said)


def place_of(error: PySparkException, pieces: Sequence[QueryPiece], name_of: Callable[[str], str]) -> Span | None:
    """The characters of the file that an error is about; None where Spark does not say."""
    text = text_of(pieces, name_of)
    where = _in_text(error, text)
    if where is None:
        return None
    where = _narrowed(error, text, where)
    start, end = (author_place(pieces, name_of, each) for each in (where.start, max(where.start, where.end - 1)))
    if start is None:
        return None
    return Span(start, max(start, end if end is not None else start) + 1)


def _narrowed(error: PySparkException, text: str, where: Span) -> Span:
    """The word that a whole query is refused for; its first one where none is known."""
    fragment = text[where.start : where.end]
    if not _QUERY.match(fragment):
        return where
    condition = str(error.getCondition() or "").partition(".")[0]
    parameters = dict(error.getMessageParameters() or {})
    searched = _COMMENT_OR_TEXT.sub(lambda found: " " * len(found[0]), fragment)
    pattern = _WORDS.get(condition) or _WORDS.get(str(error.getCondition() or ""))
    if condition == "MISSING_AGGREGATION":
        name = re.split(r"[.`\"]+", parameters.get("expression", "").strip('"`'))[-1]
        pattern = rf"\b{re.escape(name)}\b" if name else None
    if condition == "UNRESOLVED_USING_COLUMN_FOR_JOIN":
        pattern = rf"\b{re.escape(parameters.get('colName', '').strip('`'))}\b"
    found = re.search(pattern, searched, re.IGNORECASE) if pattern else None
    if found is None:
        found = re.search(r"\w+", fragment)
    return Span(where.start + found.start(), where.start + found.end()) if found else where


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
    if (found := _LINE.search(str(error))) is not None:
        lines = text.splitlines(keepends=True)
        line, column = int(found[1]), int(found[2])
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
    found = re.search(r"\w+", text[span.start : span.end])
    return Span(span.start + found.start(), span.start + found.end()) if found else span
