"""How a partner's files are to be read: their names, format and options; the default of each is what most send.

Not here: what a name says of its partition (pattern.py), and the reading itself (varve/sources/formats).
"""

from __future__ import annotations

import codecs
import difflib
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.partitions.zone import stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class LandingFormat(StrEnum):
    """What stands in a file; by the ending of its name unless it is declared."""

    CSV = "csv"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"
    AVRO = "avro"


class Header(StrEnum):
    """The first line of a CSV file: the declared columns in order, in any order, or already a row."""

    IN_ORDER = "in order"
    BY_NAME = "by name"
    NONE = "none"


class LastLine(StrEnum):
    """Whether the last line of a text file must end in a line break, without which it may have been cut off."""

    ENDED = "ended"
    ANY = "any"


class ExtraColumns(StrEnum):
    """What becomes of columns in a file that are not declared."""

    REFUSE = "refuse"
    IGNORE = "ignore"


# Endings of names, by what they say.
FORMAT_OF_ENDING = {
    ".csv": LandingFormat.CSV,
    ".jsonl": LandingFormat.JSON_LINES,
    ".ndjson": LandingFormat.JSON_LINES,
    ".parquet": LandingFormat.PARQUET,
    ".avro": LandingFormat.AVRO,
}
COMPRESSION_OF_ENDING = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2"}
# Parquet and Avro compress what is in them.
_TEXT = (LandingFormat.CSV, LandingFormat.JSON_LINES)
_ENCODINGS = (
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "latin-1", "iso-8859-1", "iso-8859-2", "iso-8859-5",
    "iso-8859-7", "iso-8859-9", "iso-8859-15", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1257", "cp437", "cp850", "koi8-r", "shift_jis", "euc-jp", "gb18030", "big5", "euc-kr",
)  # fmt: skip
_THOUSANDS = ("", ".", ",", " ", "'", "_", "\u00a0", "\u202f")
# For what stands badly between quotes.
_SPELT = {"tab": "\t", r"\t": "\t", "none": "", "space": " "}
_CSV_ONLY = ("separator", "quote", "header", "decimal", "thousands", "null")


@dataclass(frozen=True, slots=True)
class LandingOptions:
    r"""Options of a dataset whose partitions are files of the landing folder.

    Attributes:
        files: the names of its files below the dataset's folder, as `{day}|{region}.csv`,
            `{region}/orders_{day:%Y%m%d}.csv.gz` or `day={day}/region={region}/*.csv`; "": the key as Dagster spells
            it, with the ending of any format.
        format: what stands in the files; None: what their endings say.
        separator: what stands between the fields of a CSV file.
        quote: what stands around a field that holds separators, quotes or line breaks; "": nothing does.
        encoding: of the text, by any name that Python has for it.
        header: what the first line of a CSV file is.
        extra_columns: what becomes of columns that are not declared.
        decimal: what stands before the fraction of a number in a CSV file.
        thousands: what stands between groups of three digits; "": nothing.
        date_format: how dates are written (strftime); "": as 2013-01-05.
        timestamp_format: how instants are written (strftime); "": as 2013-01-05T13:00:00Z.
        timezone: the IANA zone of instants that are written without one.
        null: the texts that stand for NULL in a CSV file, beside nothing at all.
        last_line: whether the last line must end.
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
        """The options that these texts spell, by name. Raises `UnknownOption` for the first that is none."""
        values: dict[str, object] = {}
        for name, text in texts.items():
            if name not in OPTION_NAMES:
                raise UnknownOption(name, f"there is no such option.{_near(name, OPTION_NAMES)}")
            try:
                values[name] = _value(name, text)
                cls(**{name: values[name]})  # type: ignore[arg-type]
            except VarveError as error:
                raise UnknownOption(name, str(error).removeprefix(f"{name}: ")) from None
        try:
            return cls(**values)  # type: ignore[arg-type]
        except VarveError as error:
            name, _, problem = str(error).partition(": ")
            raise UnknownOption(name, problem) from None

    def format_of(self, name: str) -> LandingFormat | None:
        """The format of a file of this name; None where its ending is of none."""
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
    """An option that there is not, or a value that it cannot have; `name` is the option's."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name}: {problem}")


OPTION_NAMES = tuple(each.name for each in fields(LandingOptions))
_DEFAULTS = {each.name: each.default for each in fields(LandingOptions)}
_CHOICES: dict[str, type[StrEnum]] = {
    "format": LandingFormat,
    "header": Header,
    "extra_columns": ExtraColumns,
    "last_line": LastLine,
}


def split_compression(name: str) -> tuple[str, str]:
    """A name without the ending of its compression, and that compression: "", `gzip`, `zstd` or `bzip2`."""
    for ending, compression in COMPRESSION_OF_ENDING.items():
        if name.endswith(ending):
            return name.removesuffix(ending), compression
    return name, ""


def ending_of(name: str) -> str:
    """What follows the last dot of a name, with the dot; "" where there is none."""
    _, dot, ending = name.rpartition(".")
    return dot + ending


def endings_of(wanted: LandingFormat | None) -> tuple[str, ...]:
    """Every ending of a file of a format (None: of any), the plain ones first."""
    plain = [ending for ending, found in FORMAT_OF_ENDING.items() if wanted in {None, found}]
    text = [ending for ending in plain if FORMAT_OF_ENDING[ending] in _TEXT]
    return (*plain, *(f"{ending}{packed}" for ending in text for packed in COMPRESSION_OF_ENDING))


def _value(name: str, text: str) -> object:
    if name in _CHOICES:
        kinds = [str(each) for each in _CHOICES[name]]
        if text not in kinds:
            listed = ", ".join(f"'{each}'" for each in kinds)
            raise VarveError(f"'{text}' is unknown; it is one of {listed}.{_near(text, kinds)}")
        return _CHOICES[name](text)
    if name == "null":
        return tuple(dict.fromkeys(text.split(",")))
    return _SPELT.get(text, text) if name in {"separator", "quote", "thousands"} else text


def _is_encoding(name: str) -> bool:
    try:
        return codecs.lookup(name).name in {codecs.lookup(each).name for each in _ENCODINGS}
    except LookupError:
        return False


def _near(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
