"""The parts of a pattern of file names, the texts that stand for them in a name, and the values that these spell.

Not here: whole names, and whether a pattern is valid (pattern.py).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import escape, text_of
from varve.model.partitions.partitioning import dagster_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import Value

_PIECE = re.compile(r"\{\{|\}\}|\{(\w+)(?::([^{}]+))?\}|(\*)|([{}])")


@dataclass(frozen=True, slots=True)
class Field:
    """A placeholder for the value of a dimension; with a `format` (strftime) for a part of a window's start."""

    name: str
    format: str = ""


@dataclass(frozen=True, slots=True)
class AnyText:
    """`*`: any text, by which the several files of one partition differ."""


Element = str | Field | AnyText


def elements_of(text: str) -> Iterator[Element]:
    """The elements of a pattern. Raises VarveError where a brace has no partner."""
    literal, place = "", 0
    for match in _PIECE.finditer(text):
        literal, place = literal + text[place : match.start()], match.end()
        if match[4]:
            raise VarveError(f"files: {text!r}: a brace has no partner; write {{name}}, or two for one in a name.")
        if match[0] in {"{{", "}}"}:
            literal += match[0][0]
            continue
        if literal:
            yield literal
        literal = ""
        if match[3]:
            yield AnyText()
            continue
        # A field is within one name: `{day:%Y/%m}` is a folder for each year, and a name.
        first, *others = (match[2] or "").split("/")
        yield Field(match[1], first)
        for form in others:
            yield "/"
            yield Field(match[1], form)
    if literal + text[place:]:
        yield literal + text[place:]


def splits(elements: Sequence[Element], text: str) -> Iterator[tuple[tuple[Field, str], ...]]:
    """Every way in which a text fits the elements, each as pairs of a field and its text."""
    # Where the rest of the text does not fit the rest of the elements: it is looked at once, not for each way there.
    unfit: set[tuple[int, int]] = set()

    def of_rest(place: int, start: int) -> Iterator[tuple[tuple[Field, str], ...]]:
        if place == len(elements):
            if start == len(text):
                yield ()
            return
        element = elements[place]
        if isinstance(element, str):
            if text.startswith(element, start):
                yield from of_rest(place + 1, start + len(element))
            return
        if (place, start) in unfit:
            return
        following = elements[place + 1] if place + 1 < len(elements) else None
        longest, is_unfit = text.find("/", start), True
        for end in range(start + 1, (len(text) if longest < 0 else longest) + 1):
            # What follows a field is a literal, or the end.
            if text.startswith(following, end) if isinstance(following, str) else end == len(text):
                own = ((element, text[start:end]),) if isinstance(element, Field) else ()
                for rest_fields in of_rest(place + 1, end):
                    is_unfit = False
                    yield (*own, *rest_fields)
        if is_unfit:
            unfit.add((place, start))

    return of_rest(0, 0)


def texts_of_dimension(
    dimension: Dimension, texts: Sequence[tuple[Field, str]]
) -> tuple[dict[str, str], list[tuple[Field, str]]]:
    """What a name says of the columns of a time dimension, where it has several; and what it says of it as a whole.

    Raises UnknownPartition where it says two things of one column.
    """
    columns: dict[str, str] = {}
    own_texts = []
    has_columns = isinstance(dimension, TimeDimension) and bool(dimension.columns)
    for part, text in texts:
        if has_columns and not part.format and part.name in dimension.column_names:
            if columns.setdefault(part.name, unquote(text)) != unquote(text):
                raise UnknownPartition(f"its name says of {part.name} both {columns[part.name]} and {text}.")
        elif part.name == dimension.name or (part.format and part.name in dimension.column_names):
            own_texts.append((part, text))
    return columns if columns.keys() == set(dimension.column_names) else {}, own_texts


def value_spelt(dimension: Dimension, text: str) -> Value:
    """The value that a text spells: escaped as Dagster does it, as Hive does it, or not at all."""
    value = dimension.parse(unquote(text))
    if text not in spellings(value):
        raise UnknownPartition(f"{text!r} is another spelling of {dagster_text(value)!r}; name it so.")
    return value


def spellings(value: Value) -> set[str]:
    """Every text that spells a value in a name."""
    return {dagster_text(value), dagster_text(value).replace("/", "%2F"), escape(text_of(value)), text_of(value)}


def window_written(dimension: Dimension, written: Sequence[tuple[str, str]]) -> Value:
    """The window whose start is written in pairs of a format and a text. Raises UnknownPartition if there is none."""
    assert isinstance(dimension, TimeDimension)
    texts, formats = " ".join(text for _, text in written), " ".join(form for form, _ in written)
    try:
        start = dt.datetime.strptime(texts, formats)  # noqa: DTZ007 - the clock of the dimension's zone
    except re.error:
        # A part of the time stands in it twice.
        return _window_written_once(dimension, written)
    except ValueError:
        raise UnknownPartition(f"{texts!r} is no {dimension.name} as {formats} writes it.") from None
    if start.tzinfo is None:
        value = dimension.parse(start.strftime(dimension.text_format))
    else:
        # The offset says which moment it is, also where the clock shows it for the second time.
        value = dimension.holding(start)
        if dimension.start_of(value) != int(start.timestamp()):
            raise UnknownPartition(f"{texts!r} begins no window of {dimension.name}; the next one begins at {value}.")
        value = dimension.parse(text_of(value))
    spelt = [
        canonical for form, text_given in written
        if (canonical := written_start(dimension, value, form)) != text_given
    ]  # fmt: skip
    if spelt:
        raise UnknownPartition(
            f"{texts!r} is another spelling of {value}{f', {spelt[0]!r}' if spelt[0] else ''}; name it so."
        )
    return value


def _window_written_once(dimension: TimeDimension, written: Sequence[tuple[str, str]]) -> Value:
    """The window that one of the pairs says by itself, where the others say the same."""
    for pair in written if len(written) > 1 else ():
        try:
            value = window_written(dimension, [pair])
        except UnknownPartition:
            continue
        if all(written_start(dimension, value, form) == text for form, text in written):
            return value
    shown = " and ".join(f"{text!r} ({form})" for form, text in written)
    raise UnknownPartition(f"{shown} do not say together which {dimension.name} it is.")


def written_start(dimension: TimeDimension, value: Value, form: str) -> str | None:
    """The start of a window in a format; None where the clock shows it for the second time and the format has no %z."""
    text = text_of(value)
    try:
        start = dt.datetime.strptime(text, dimension.text_format).replace(tzinfo=ZoneInfo(dimension.timezone))
    except ValueError:
        if "%z" not in form:
            return None
        start = dt.datetime.strptime(text, f"{dimension.text_format}%z")
    return start.strftime(form)
