"""Which partition the name of a landing file stands for, and which name the file of a partition has.

A name is split in every way that fits the pattern. It is accepted where exactly one way gives a key that is spelt so.

Not here: the parts of a name (name_parts.py), the folders (varve/sources/landing/listing.py), and the content of a file
(options.py).
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.landing.name_parts import (
    AnyText,
    Element,
    Field,
    elements_of,
    splits,
    texts_of_dimension,
    value_spelt,
    window_written,
    written_start,
)
from varve.model.landing.options import FORMAT_OF_ENDING, LandingOptions, ending_of, endings_of, split_compression
from varve.model.landing.wanted_names import WantedNames
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.key import escape, text_of
from varve.model.partitions.partitioning import dagster_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.partitions.dimension import Dimension
    from varve.model.partitions.key import PartitionKey, Value
    from varve.model.partitions.partitioning import Partitioning

# Enough windows to see that a format tells them apart.
_WINDOWS_TRIED = 70
_NAMES_KEPT = 200_000
# A name of nothing but separators fits a pattern in millions of ways; one that a person gives, in a few.
_MOST_WAYS = 10_000
# How many partitions a message names for which a file may be.
_MOST_TOLD = 5


class NamedPartition(NamedTuple):
    """The partition that a name stands for, and Dagster's spelling of it."""

    key: PartitionKey
    text: str


@dataclass(frozen=True)
class FilePattern:
    """The pattern of the names of a dataset's files, below the folder of the dataset.

    Attributes:
        elements: literal text, fields and stars in their order. A single field without a name is the whole key as
            Dagster spells it.
        endings: the endings that may follow the pattern; empty where the pattern itself ends in that of a format.
        ending_needed: whether a name must have one of these endings.
    """

    partitioning: Partitioning
    text: str
    elements: tuple[Element, ...]
    endings: tuple[str, ...]
    ending_needed: bool
    # A folder is listed at every tick, and a hundred thousand names take seconds to take apart.
    _known: dict[str, NamedPartition | UnknownPartition] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @classmethod
    def of(cls, options: LandingOptions, partitioning: Partitioning) -> FilePattern:
        """The pattern that the options declare. Raises VarveError where the pattern is not valid, with the reason."""
        elements = tuple(elements_of(options.files)) if options.files else (Field(""),)
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
        """A regular expression for the name of each folder above a file, outermost first; it may accept more names."""
        rough = "".join(re.escape(element) if isinstance(element, str) else ".+" for element in self.elements)
        return tuple(re.compile(segment) for segment in rough.split("/")[:-1])

    def name(self, key: PartitionKey) -> str:
        """The name of the file of a partition; where it may have several files, their names with `*` in them."""
        if self.elements == (Field(""),):
            return f"{self._dagster_name(key)}{self.endings[0]}"
        hive = "/" in self.text
        rendered = [
            element if isinstance(element, str) else self._rendered(element, key, hive=hive, after=before)
            for before, element in pairwise(("", *self.elements))
        ]
        return "".join(rendered) + ("" if not self.endings or self.many else self.endings[0])

    def names_of(self, key: PartitionKey) -> tuple[str, ...]:
        """Every name that the file of a partition may have, one for each ending; the one of `name` is the first."""
        name = self.name(key)
        if not self.endings or self.many:
            return (name,)
        stem = name.removesuffix(self.endings[0])
        return tuple(f"{stem}{ending}" for ending in self.endings)

    def name_like(self, key: PartitionKey, sent: str) -> str:
        """The name of the file of a partition, with the ending of another name where that is one that it may have."""
        names, ending = self.names_of(key), sent.removeprefix(self.stem(sent))
        return next((name for name in names if ending and name.endswith(ending)), names[0])

    def wanted(self, keys: Sequence[PartitionKey]) -> WantedNames:
        """The names that the files of these partitions may have, and perhaps some others."""
        if self.elements != (Field(""),):
            return WantedNames.of(self.elements, self.partitioning, keys)
        dagster_names = [self._dagster_name(key) for key in keys]
        return WantedNames((frozenset(dagster_names).union(map(unquote, dagster_names)),))

    def stem(self, name: str) -> str:
        """A file name without the ending that may follow the pattern."""
        return name.removesuffix(max((ending for ending in self.endings if name.endswith(ending)), key=len, default=""))

    def key(self, name: str) -> PartitionKey:
        """The partition of a file. Raises UnknownPartition with the reason where its name fits none, or several."""
        return self.named(name).key

    def named(self, name: str) -> NamedPartition:
        """As `key`, with Dagster's spelling of it. A name is taken apart once, also one that fits no partition."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _NAMES_KEPT:
                self._known.clear()
            try:
                key = self._parsed(name)
                known = NamedPartition(key, self.partitioning.to_dagster(key))
            except UnknownPartition as error:
                known = error.with_traceback(None)
            self._known[name] = known
        if isinstance(known, UnknownPartition):
            raise type(known)(*known.args)
        return known

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
        first_error: UnknownPartition | None = None
        for number, texts in enumerate(splits(self.elements, stem), start=1):
            if number > _MOST_WAYS:
                raise UnknownPartition(f"its name fits {self.text} in more than {_MOST_WAYS:,} ways; rename it.")
            try:
                keys[self._key_of(texts)] = None
            except UnknownPartition as error:
                first_error = first_error or error
            if len(keys) > _MOST_TOLD:
                break
        if not keys:
            raise first_error or UnknownPartition(f"its name does not fit {self.text}.")
        if len(keys) > 1:
            raise UnknownPartition(f"its name may be of {' or of '.join(key.path for key in keys)}.")
        return next(iter(keys))

    def _whole_key(self, stem: str) -> PartitionKey:
        key = self.partitioning.from_dagster(stem)
        canonical = self._dagster_name(key)
        if stem not in {canonical, unquote(canonical)}:
            raise UnknownPartition(f"{stem!r} is another spelling of {canonical!r}; name it so.")
        return key

    def _dagster_name(self, key: PartitionKey) -> str:
        return self.partitioning.to_dagster(key).replace("/", "%2F")

    def _key_of(self, texts: Sequence[tuple[Field, str]]) -> PartitionKey:
        values: list[Value] = []
        for dimension in self.partitioning.dimensions:
            columns, own_texts = texts_of_dimension(dimension, texts)
            plain = {text for field, text in own_texts if not field.format}
            if len(plain) > 1:
                raise UnknownPartition(f"its name says of {dimension.name} both {' and '.join(sorted(plain))}.")
            moments = [(field.format, text) for field, text in own_texts if field.format]
            candidates = [dimension.parse_columns(columns)] if columns else []
            candidates += [value_spelt(dimension, text) for text in plain]
            if candidates:
                # What says the time once more, or a part of it, is compared and says no window by itself.
                assert not moments or isinstance(dimension, TimeDimension)
                for form, text in moments:
                    if (wanted := written_start(dimension, candidates[0], form)) not in {text, None}:  # type: ignore[arg-type]
                        raise UnknownPartition(
                            f"its name says of {dimension.name} both {candidates[0]} and {text} ({form}), not {wanted}."
                        )
            else:
                candidates = [window_written(dimension, moments)]
            if other := next((value for value in candidates if value != candidates[0]), None):
                raise UnknownPartition(f"its name says of {dimension.name} both {candidates[0]} and {other}.")
            values.append(candidates[0])
        return self.partitioning.key(values)

    def _rendered(self, element: Field | AnyText, key: PartitionKey, *, hive: bool, after: Element) -> str:
        if isinstance(element, AnyText):
            return "*"
        dimension = self.partitioning[element.name]
        of_column = element.name in self.partitioning.names and not element.format
        value = key[element.name] if of_column else dimension.value_in(key)
        if isinstance(value, dt.datetime) and not str(after).endswith(f"{element.name}="):
            # The start as Dagster's key has it, on the clock of the zone; in a path of Hive's, `hour=...`, it is UTC.
            value = dimension.value_in(key)
        if not element.format:
            return escape(text_of(value)) if hive else dagster_text(value).replace("/", "%2F")
        assert isinstance(dimension, TimeDimension)
        return written_start(dimension, value, element.format) or text_of(value)

    def _problem(self) -> str:
        """Why the pattern is not valid; "" where it is valid."""
        if self.elements == (Field(""),):
            return ""
        names = self.partitioning.names
        literal = "".join(element if isinstance(element, str) else "x" for element in self.elements)
        if any(segment in {"", ".", ".."} or segment[0] in "._" for segment in literal.split("/")):
            return f"{self.text!r}: every part between / needs a name, which does not begin with . or _."
        fields = [element for element in self.elements if isinstance(element, Field)]
        if problem := next(filter(None, map(self._field_problem, fields)), ""):
            return problem
        named = {field.name for field in fields}
        # A time dimension is named as a whole, or by all of its columns.
        whole = {name for name in names if self.partitioning[name].name in named}
        if missing := [name for name in names if name not in named | whole]:
            return f"{self.text!r} says nothing of {', '.join(missing)}; write {{{missing[0]}}} where it stands."
        for place, element in enumerate(self.elements[1:]):
            if not isinstance(element, str) and not isinstance(self.elements[place], str):
                return f"{self.text!r}: nothing stands between two of its parts, so that no name can be taken apart."
        return next(filter(None, map(self._format_problem, self.partitioning.dimensions)), "")

    def _field_problem(self, field: Field) -> str:
        names = tuple(dict.fromkeys((*self.partitioning.names, *self.partitioning.dimension_names)))
        if field.name not in names:
            near = difflib.get_close_matches(field.name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"{{{field.name}}} is no dimension; there are {', '.join(names) or 'none'}.{hint}"
        if field.format and not (isinstance(self.partitioning[field.name], TimeDimension) and "%" in field.format):
            return f"{{{field.name}:{field.format}}}: only a time dimension has a format, written as %Y%m%d."
        return ""

    def nameless(self) -> Value | None:
        """A window that no name can stand for: the hour that the clock shows a second time, by a format without %z."""
        for dimension in self.partitioning.dimensions:
            formats = self._formats(dimension)
            if not any(formats) or "" in formats or not isinstance(dimension, TimeDimension):
                continue
            for value in map(dimension.value_at, dimension.sample()):
                if any(written_start(dimension, value, form) is None for form in formats):
                    return value
        return None

    def _formats(self, dimension: Dimension) -> list[str]:
        return [
            element.format
            for element in self.elements
            if isinstance(element, Field)
            and (element.name == dimension.name or (element.format and element.name in dimension.column_names))
            and (element.format or not (isinstance(dimension, TimeDimension) and dimension.columns))
        ]

    def _format_problem(self, dimension: Dimension) -> str:
        formats = self._formats(dimension)
        if not any(formats) or "" in formats or not isinstance(dimension, TimeDimension):
            return ""
        for value in islice(dimension.keys(now=dt.datetime.now(dt.UTC)), _WINDOWS_TRIED):
            written = [(form, text) for form in formats if (text := written_start(dimension, value, form))]
            if len(written) < len(formats):
                continue  # the hour that the clock shows twice
            try:
                parsed_value: Value | None = window_written(dimension, written)
            except UnknownPartition:
                parsed_value = None
            if parsed_value != value:
                return f"{' '.join(formats)} does not tell the windows of {dimension.name} apart, {value} for one."
        return ""


def spelt_first(names: Mapping[str, PartitionKey], pattern: FilePattern) -> dict[PartitionKey, str]:
    """For each partition the file to take: the name that the pattern itself gives, else the shortest name."""
    first: dict[PartitionKey, str] = {}
    doubled: dict[PartitionKey, list[str]] = {}
    for name, key in names.items():
        if (other := first.setdefault(key, name)) != name:
            doubled.setdefault(key, [other]).append(name)
    for key, files in doubled.items():
        own = pattern.name(key)
        first[key] = min((file != own, len(file), file) for file in files)[2]
    return first
