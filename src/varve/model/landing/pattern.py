"""What the name of a landing file says of its partition, and how the file of a partition is called.

A name is taken apart in every way that fits, and taken where just one of them is a key that is spelt so.

Not here: the folders (varve/sources/landing/listing.py), and what stands in a file (options.py).
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.landing.options import FORMAT_OF_ENDING, LandingOptions, ending_of, endings_of, split_compression
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import escape, text_of
from varve.model.partitions.partitioning import dagster_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning

_PIECE = re.compile(r"\{\{|\}\}|\{(\w+)(?::([^{}]+))?\}|(\*)|([{}])")
# Enough windows to see that a format tells them apart.
_WINDOWS_TRIED = 70
_NAMES_KEPT = 200_000


@dataclass(frozen=True, slots=True)
class Field:
    """A place for a value of a dimension, or with a format for a part of a moment."""

    name: str
    format: str = ""


@dataclass(frozen=True, slots=True)
class AnyText:
    """`*`: whatever tells the files of one partition apart."""


Element = str | Field | AnyText


@dataclass(frozen=True)
class FilePattern:
    """The names of a dataset's files, below its folder.

    Attributes:
        elements: literal text, fields and stars in their order; a single field of no name is the key as Dagster
            spells it.
        endings: what a name may end in beyond the pattern; none where the pattern itself ends in a format.
    """

    partitioning: Partitioning
    text: str
    elements: tuple[Element, ...]
    endings: tuple[str, ...]
    ending_needed: bool
    # A folder is listed at every tick, and a hundred thousand names take seconds to take apart.
    _keys: dict[str, PartitionKey] = field(init=False, repr=False, compare=False, default_factory=dict)

    @classmethod
    def of(cls, options: LandingOptions, partitioning: Partitioning) -> FilePattern:
        """The pattern that the options declare. Raises VarveError with what is wrong with it."""
        elements = tuple(_elements(options.files)) if options.files else (Field(""),)
        last = elements[-1]
        stem, _ = split_compression(last) if isinstance(last, str) else ("", "")
        closed = ending_of(stem) in FORMAT_OF_ENDING or (isinstance(last, str) and options.format is not None)
        endings = () if closed else endings_of(options.format)
        # With a declared format, `part-0001` is a name too.
        pattern = cls(partitioning, options.files, elements, endings, not closed and options.format is None)
        if problem := pattern._problem():
            raise VarveError(f"files: {problem}")
        return pattern

    @property
    def many(self) -> bool:
        """Whether a partition may have several files."""
        return any(isinstance(element, AnyText) for element in self.elements)

    @cached_property
    def folders(self) -> tuple[re.Pattern[str], ...]:
        """What the folders above a file are called, roughly, from the outermost."""
        rough = "".join(re.escape(each) if isinstance(each, str) else ".+" for each in self.elements)
        return tuple(re.compile(segment) for segment in rough.split("/")[:-1])

    def name(self, key: PartitionKey) -> str:
        """How the file of a partition is called; of several files, what they have in common."""
        if self.elements == (Field(""),):
            return f"{self._spelt(key)}{self.endings[0]}"
        hive = "/" in self.text
        parts = [each if isinstance(each, str) else self._rendered(each, key, hive=hive) for each in self.elements]
        return "".join(parts) + ("" if not self.endings or self.many else self.endings[0])

    def names(self, keys: Iterable[PartitionKey]) -> Container[str] | None:
        """What names of files of these partitions begin with, before their endings; None where that takes parsing."""
        if self.elements != (Field(""),):
            return None
        spelt = [self._spelt(key) for key in keys]
        return {*spelt, *map(unquote, spelt)}

    def stem(self, name: str) -> str:
        """A name without the ending that follows the pattern."""
        return name.removesuffix(max((each for each in self.endings if name.endswith(each)), key=len, default=""))

    def key(self, name: str) -> PartitionKey:
        """The partition of a file. Raises UnknownPartition with the reason where its name says none, or several."""
        if name not in self._keys:
            if len(self._keys) >= _NAMES_KEPT:
                self._keys.clear()
            self._keys[name] = self._parsed(name)
        return self._keys[name]

    def _parsed(self, name: str) -> PartitionKey:
        stem = self.stem(name)
        if stem == name and self.ending_needed:
            raise UnknownPartition(
                f"its ending is of no known format; known are {some(self.endings, limit=5)}, or say "
                "which it is with the option format."
            )
        if self.elements == (Field(""),):
            return self._whole_key(stem)
        keys: dict[PartitionKey, None] = {}
        reasons: list[str] = []
        for texts in _splits(self.elements, stem):
            try:
                keys[self._key_of(texts)] = None
            except UnknownPartition as error:
                reasons.append(str(error))
        if not keys:
            raise UnknownPartition(reasons[0] if reasons else f"its name does not fit {self.text}.")
        if len(keys) > 1:
            raise UnknownPartition(f"its name may be of {' or of '.join(key.path for key in keys)}.")
        return next(iter(keys))

    def _whole_key(self, stem: str) -> PartitionKey:
        key = self.partitioning.from_dagster(stem)
        canonical = self._spelt(key)
        if stem not in {canonical, unquote(canonical)}:
            raise UnknownPartition(f"{stem!r} is another spelling of {canonical!r}; name it so.")
        return key

    def _spelt(self, key: PartitionKey) -> str:
        return self.partitioning.to_dagster(key).replace("/", "%2F")

    def _key_of(self, texts: Sequence[tuple[Field, str]]) -> PartitionKey:
        values: list[Value] = []
        for dimension in self.partitioning.dimensions:
            mine = [(field, text) for field, text in texts if field.name == dimension.name]
            plain = {text for field, text in mine if not field.format}
            if len(plain) > 1:
                raise UnknownPartition(f"its name says of {dimension.name} both {' and '.join(sorted(plain))}.")
            moments = [(field.format, text) for field, text in mine if field.format]
            found = [_value(dimension, text) for text in plain]
            found += [_moment(dimension, moments)] if moments else []
            if found[1:] and found[0] != found[1]:
                raise UnknownPartition(f"its name says of {dimension.name} both {found[0]} and {found[1]}.")
            values.append(found[0])
        return self.partitioning.key(values)

    def _rendered(self, element: Field | AnyText, key: PartitionKey, *, hive: bool) -> str:
        if isinstance(element, AnyText):
            return "*"
        value = key[element.name]
        if not element.format:
            return escape(text_of(value)) if hive else dagster_text(value).replace("/", "%2F")
        dimension = self.partitioning[element.name]
        assert isinstance(dimension, TimeDimension)
        return _written(dimension, value, element.format) or text_of(value)

    def _problem(self) -> str:
        """What is wrong with the pattern; "" where nothing is."""
        if self.elements == (Field(""),):
            return ""
        names = self.partitioning.names
        literal = "".join(each if isinstance(each, str) else "x" for each in self.elements)
        if any(segment in {"", ".", ".."} or segment[0] in "._" for segment in literal.split("/")):
            return f"{self.text!r}: every part between / needs a name, which does not begin with . or _."
        fields = [each for each in self.elements if isinstance(each, Field)]
        if problem := next(filter(None, map(self._field_problem, fields)), ""):
            return problem
        if missing := [name for name in names if name not in {field.name for field in fields}]:
            return f"{self.text!r} says nothing of {', '.join(missing)}; write {{{missing[0]}}} where it stands."
        for place, element in enumerate(self.elements[1:]):
            if not isinstance(element, str) and not isinstance(self.elements[place], str):
                return f"{self.text!r}: nothing stands between two of its parts, so that no name can be taken apart."
        return next(filter(None, map(self._format_problem, self.partitioning.dimensions)), "")

    def _field_problem(self, field: Field) -> str:
        names = self.partitioning.names
        if field.name not in names:
            near = difflib.get_close_matches(field.name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"{{{field.name}}} is no dimension; there are {', '.join(names)}.{hint}"
        if field.format and not (isinstance(self.partitioning[field.name], TimeDimension) and "%" in field.format):
            return f"{{{field.name}:{field.format}}}: only a time dimension has a format, written as %Y%m%d."
        return ""

    def _format_problem(self, dimension: Dimension) -> str:
        formats = [each.format for each in self.elements if isinstance(each, Field) and each.name == dimension.name]
        if not any(formats) or "" in formats or not isinstance(dimension, TimeDimension):
            return ""
        for value in islice(dimension.keys(now=dt.datetime.now(dt.UTC)), _WINDOWS_TRIED):
            written = [(each, text) for each in formats if (text := _written(dimension, value, each))]
            if len(written) < len(formats):
                continue  # the hour that the clock shows twice
            try:
                found: Value | None = _moment(dimension, written)
            except UnknownPartition:
                found = None
            if found != value:
                return f"{' '.join(formats)} does not tell the windows of {dimension.name} apart, {value} for one."
        return ""


def _elements(text: str) -> Iterator[Element]:
    """The pattern's parts. Raises VarveError where a brace has no partner."""
    literal, place = "", 0
    for found in _PIECE.finditer(text):
        literal, place = literal + text[place : found.start()], found.end()
        if found[4]:
            raise VarveError(f"files: {text!r}: a brace has no partner; write {{name}}, or two for one in a name.")
        if found[0] in {"{{", "}}"}:
            literal += found[0][0]
            continue
        if literal:
            yield literal
        literal = ""
        yield AnyText() if found[3] else Field(found[1], found[2] or "")
    if literal + text[place:]:
        yield literal + text[place:]


def _splits(elements: Sequence[Element], text: str) -> Iterator[tuple[tuple[Field, str], ...]]:
    """Every way in which a text fits the elements: what stands in each field."""
    if not elements:
        if not text:
            yield ()
        return
    first, rest = elements[0], elements[1:]
    if isinstance(first, str):
        if text.startswith(first):
            yield from _splits(rest, text[len(first) :])
        return
    longest = (text + "/").index("/")
    following = rest[0] if rest and isinstance(rest[0], str) else None
    for end in range(1, longest + 1):
        # What follows a field is a literal, or the end.
        if text.startswith(following, end) if following is not None else end == len(text):
            mine = ((first, text[:end]),) if isinstance(first, Field) else ()
            for others in _splits(rest, text[end:]):
                yield (*mine, *others)


def _value(dimension: Dimension, text: str) -> Value:
    """The value that a text spells as Dagster, Hive or nobody escapes it."""
    value = dimension.parse(unquote(text))
    spellings = {dagster_text(value), dagster_text(value).replace("/", "%2F"), escape(text_of(value)), text_of(value)}
    if text not in spellings:
        raise UnknownPartition(f"{text!r} is another spelling of {dagster_text(value)!r}; name it so.")
    return value


def _moment(dimension: Dimension, written: Sequence[tuple[str, str]]) -> Value:
    """The window whose start is written so, each part in its format."""
    assert isinstance(dimension, TimeDimension)
    texts, formats = " ".join(text for _, text in written), " ".join(each for each, _ in written)
    try:
        start = dt.datetime.strptime(texts, formats)  # noqa: DTZ007 - the clock of the dimension's zone
    except ValueError:
        raise UnknownPartition(f"{texts!r} is no {dimension.name} as {formats} writes it.") from None
    # Only with its offset a start is told that the clock shows for the second time.
    spelt = [start.strftime(f"{dimension.text_format}{offset}") for offset in ("", "%z")]
    refused = ""
    for text in spelt if start.tzinfo is not None else spelt[:1]:
        try:
            value = dimension.parse(text)
        except UnknownPartition as error:
            refused = refused or str(error)
            continue
        other = [canonical for each, own in written if (canonical := _written(dimension, value, each)) != own]
        if not other:
            return value
        refused = f"{texts!r} is another spelling of {value}{f', {other[0]!r}' if other[0] else ''}; name it so."
    raise UnknownPartition(refused)


def _written(dimension: TimeDimension, value: Value, form: str) -> str | None:
    """The start of a window in a format; None where the clock shows it for the second time, and no offset is told."""
    text = text_of(value)
    try:
        start = dt.datetime.strptime(text, dimension.text_format).replace(tzinfo=ZoneInfo(dimension.timezone))
    except ValueError:
        if "%z" not in form:
            return None
        start = dt.datetime.strptime(text, f"{dimension.text_format}%z")
    return start.strftime(form)


def spelt_first(names: Mapping[str, PartitionKey], pattern: FilePattern) -> dict[PartitionKey, str]:
    """Of several files of one partition the one to take: that which is spelt as we would, then the shortest name."""
    best: dict[PartitionKey, str] = {}
    for name in sorted(names, key=lambda each: (each != pattern.name(names[each]), len(each), each)):
        best.setdefault(names[name], name)
    return best
