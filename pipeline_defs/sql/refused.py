"""What Spark has against a text that runs, at the place in the file that it is about.

Not here: which texts Spark is asked about (analysed.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline_defs.sql.errors import Span, nearest
from pipeline_defs.sql.written import author_place, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from pipeline_defs.sql.written import Piece

_LINE = re.compile(r"line (\d+),? pos (\d+)")


def place_of(error: PySparkException, pieces: Sequence[Piece], name_of: Callable[[str], str]) -> Span | None:
    """The characters of the file that an error is about; None where Spark does not say."""
    text = text_of(pieces, name_of)
    where = _in_text(error, text)
    if where is None:
        return None
    start, end = (author_place(pieces, name_of, each) for each in (where.start, max(where.start, where.end - 1)))
    if start is None:
        return None
    return Span(start, max(start, end if end is not None else start) + 1)


def told_by(error: PySparkException, names: dict[str, str], functions: Callable[[], Iterable[str]]) -> str:
    """What Spark says, in one line, with the names that the file has; `names` are those of inputs."""
    condition = str(error.getCondition() or "")
    parameters = dict(error.getMessageParameters() or {})
    if condition.startswith("UNRESOLVED_ROUTINE"):
        name = parameters.get("routineName", "").replace("`", "")
        return f"Spark refuses it: it has no function {name}.{nearest(name, functions())}"
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    said = lines[0].split("] ", 1)[-1].split(" SQLSTATE")[0] if lines else condition
    for ours, theirs in names.items():
        said = said.replace(f"`{ours}`", f"`{theirs}`").replace(ours, theirs)
    return f"Spark refuses it: {said}"


def functions_of(spark: SparkSession) -> list[str]:
    """The names of Spark's functions."""
    return [str(row[0]) for row in spark.sql("SHOW FUNCTIONS").collect()]


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
    if (found := _LINE.search(str(error))) is None:
        return None
    lines = text.splitlines(keepends=True)
    line, column = int(found[1]), int(found[2])
    if line > len(lines):
        return None
    start = sum(map(len, lines[: line - 1])) + column
    word = re.match(r"\w+|.", text[start:])
    return Span(start, start + (len(word[0]) if word else 1)) if start < len(text) else None
