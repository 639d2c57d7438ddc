"""How the landing files of a partner are read: names, format and options. The defaults fit most partners.

Not here: which partition a file name stands for (pattern.py), and the reading itself (varve/sources/formats/).
"""

from __future__ import annotations

import codecs
import difflib
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.zone import stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class LandingFormat(StrEnum):
    """The format of a file; the ending of its name decides it unless the dataset declares a format."""

    CSV = "csv"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"
    AVRO = "avro"


class Header(StrEnum):
    """What the first line of a CSV file is: the declared columns in order, in any order, or already a row."""

    IN_ORDER = "in order"
    BY_NAME = "by name"
    NONE = "none"


class LastLine(StrEnum):
    """Whether the last line of a text file must end in a line break, without which it may have been cut off."""

    ENDED = "ended"
    ANY = "any"


class ExtraColumns(StrEnum):
    """What happens to columns of a file that are not declared."""

    REFUSE = "refuse"
    IGNORE = "ignore"


# The format or the compression that each ending of a file name stands for.
FORMAT_OF_ENDING = {
    ".csv": LandingFormat.CSV,
    ".jsonl": LandingFormat.JSON_LINES,
    ".ndjson": LandingFormat.JSON_LINES,
    ".parquet": LandingFormat.PARQUET,
    ".avro": LandingFormat.AVRO,
}
COMPRESSION_OF_ENDING = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2"}
# Only text files have a compression around them: Parquet and Avro compress their own content.
_TEXT = (LandingFormat.CSV, LandingFormat.JSON_LINES)
_ENCODINGS = (
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "latin-1", "iso-8859-1", "iso-8859-2", "iso-8859-5",
    "iso-8859-7", "iso-8859-9", "iso-8859-15", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1257", "cp437", "cp850", "koi8-r", "shift_jis", "euc-jp", "gb18030", "big5", "euc-kr",
)  # fmt: skip
_THOUSANDS = ("", ".", ",", " ", "'", "_", "\u00a0", "\u202f")
# Words for characters that are hard to write between quotes.
_CHARACTER_OF_WORD = {"tab": "\t", r"\t": "\t", "none": "", "space": " "}
_CSV_ONLY = ("separator", "quote", "header", "decimal", "thousands", "null")


@dataclass(frozen=True, slots=True)
class LandingOptions:
    r"""Options of a dataset whose partitions are files of the landing folder.

    Attributes:
        files: the pattern of the file names below the dataset's folder, for example `{day}|{region}.csv`,
            `{region}/orders_{day:%Y%m%d}.csv.gz` or `day={day}/region={region}/*.csv`. "" means the key as Dagster
            spells it, followed by the ending of any format.
        format: the format of the files; None: the ending of each name decides.
        separator: the text between the fields of a CSV file.
        quote: the character around a field that contains separators, quotes or line breaks; "": none.
        encoding: the encoding of the text, by any name that Python has for it.
        header: what the first line of a CSV file is.
        extra_columns: what happens to columns that are not declared.
        decimal: the decimal mark of numbers in a CSV file.
        thousands: the mark between groups of three digits; "": none.
        date_format: how dates are written (strftime); "": as 2013-01-05.
        timestamp_format: how instants are written (strftime); "": as 2013-01-05T13:00:00Z.
        timezone: the IANA time zone of instants that are written without a zone.
        null: the texts that mean NULL in a CSV file where no quotes stand around them; none of them: only an empty
            field does, which always means NULL.
        last_line: whether the last line must end in a line break.
    """

    files: str = ""
    format: LandingFormat | None = None
    separator: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    header: Header = Header.IN_ORDER
    extra_columns: ExtraColumns = ExtraColumns.REFUSE
    decimal: str = "."
    thousands: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    timezone: str = "UTC"
    null: tuple[str, ...] = ("NA",)
    last_line: LastLine = LastLine.ENDED

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise VarveError(" ".join(f"{name}: {problem}" for name, problem in problems))

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> LandingOptions:
        """The options from their texts, by name. Raises `UnknownOption` for the first one that is not valid."""
        values: dict[str, object] = {}
        for name, text in texts.items():
            if name not in OPTION_NAMES:
                raise UnknownOption(name, f"there is no such option.{_near(name, OPTION_NAMES)}")
            try:
                values[name] = _value(name, text)
            except VarveError as error:
                raise UnknownOption(name, str(error).removeprefix(f"{name}: ")) from None
        try:
            return cls(**values)  # type: ignore[arg-type]
        except VarveError as error:
            name, _, problem = str(error).partition(": ")
            raise UnknownOption(name, problem) from None

    def format_of(self, name: str) -> LandingFormat | None:
        """The format of a file with this name; None where its ending stands for no format."""
        stem, _ = split_compression(name)
        ending = ending_of(stem)
        return self.format or FORMAT_OF_ENDING.get(ending)

    def _problems(self) -> Iterator[tuple[str, str]]:
        if not self.separator or set(self.separator) & {"\n", "\r", self.quote}:
            yield "separator", f"{self.separator!r} cannot stand between fields; write one as ';', or 'tab'."
        if len(self.quote) > 1 or self.quote in {"\n", "\r", " "}:
            yield "quote", f"{self.quote!r} is no quote; write one character, or 'none'."
        if not _is_encoding(self.encoding):
            yield (
                "encoding",
                f"{self.encoding!r} is unknown; it is one of {', '.join(_ENCODINGS)}."
                + _near(self.encoding, _ENCODINGS),
            )
        if self.decimal not in {".", ","}:
            yield "decimal", f"{self.decimal!r} is no decimal mark; write '.' or ','."
        if self.thousands not in _THOUSANDS:
            yield "thousands", f"{self.thousands!r} does not group digits; write '.', ',', 'space', or an apostrophe."
        elif self.thousands == self.decimal:
            yield "thousands", f"{self.thousands!r} is the decimal mark too; no number could be read."
        for name in ("date_format", "timestamp_format"):
            if (text := getattr(self, name)) and "%" not in text:
                yield name, f"{text!r} has no % in it; write it as strftime does: '%d.%m.%Y', '%d.%m.%Y %H:%M:%S'."
            elif re.search(r"(?<!%)(%%)*%Z", text):
                problem = "what %Z reads depends on the machine, and is no offset. Write %z for one such as +01:00"
                yield name, f"{text!r}: {problem}, or the letters themselves and the zone as timezone."
        try:
            stretch(self.timezone, 0)
        except VarveError:
            yield "timezone", f"{self.timezone!r} is no IANA time zone; write one as 'Europe/Paris'."
        if self.format is not None and self.format is not LandingFormat.CSV:
            yield from (
                (name, f"format '{self.format}' has no option {name}.")
                for name in _CSV_ONLY
                if getattr(self, name) != _DEFAULTS[name]
            )


class UnknownOption(VarveError):
    """An option that does not exist, or a value that the option cannot have; `name` is the name of the option."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name}: {problem}")


# Empty, it says that no text means NULL.
MAY_BE_EMPTY = frozenset({"null"})
OPTION_NAMES = tuple(option.name for option in fields(LandingOptions))
_DEFAULTS = {option.name: option.default for option in fields(LandingOptions)}
_CHOICES: dict[str, type[StrEnum]] = {
    "format": LandingFormat,
    "header": Header,
    "extra_columns": ExtraColumns,
    "last_line": LastLine,
}


def split_compression(name: str) -> tuple[str, str]:
    """A file name without the ending of its compression, and the compression: "", `gzip`, `zstd` or `bzip2`."""
    for ending, compression in COMPRESSION_OF_ENDING.items():
        if name.endswith(ending):
            return name.removesuffix(ending), compression
    return name, ""


def ending_of(name: str) -> str:
    """The last dot of a file name and the text after it; "" where the name has no dot."""
    _, dot, ending = name.rpartition(".")
    return dot + ending


def endings_of(wanted: LandingFormat | None) -> tuple[str, ...]:
    """All endings of files of one format (None: of any format), those without compression first."""
    plain = [ending for ending, file_format in FORMAT_OF_ENDING.items() if wanted in {None, file_format}]
    text_endings = [ending for ending in plain if FORMAT_OF_ENDING[ending] in _TEXT]
    return (
        *plain,
        *(f"{ending}{compression_ending}" for ending in text_endings for compression_ending in COMPRESSION_OF_ENDING),
    )


def _value(name: str, text: str) -> object:
    if name in _CHOICES:
        choices = [str(choice) for choice in _CHOICES[name]]
        if text not in choices:
            quoted = ", ".join(f"'{choice}'" for choice in choices)
            raise VarveError(f"'{text}' is unknown; it is one of {quoted}.{_near(text, choices)}")
        return _CHOICES[name](text)
    if name == "null":
        return tuple(dict.fromkeys(text.split(","))) if text else ()
    return _CHARACTER_OF_WORD.get(text, text) if name in {"separator", "quote", "thousands"} else text


def _is_encoding(name: str) -> bool:
    try:
        return codecs.lookup(name).name in {codecs.lookup(encoding).name for encoding in _ENCODINGS}
    except LookupError:
        return False


def _near(word: str, candidates: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word.lower(), list(candidates), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]}?" if matches else ""
