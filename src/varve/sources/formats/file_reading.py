"""How a landing file is to be read: columns, format and spelling; and the error of a file as a whole.

Not here: the options from which it is made (varve/model/landing/options.py), and reading (formats.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from varve.sources.formats.checks import phrase
from varve.sources.formats.texts import Spelling

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_TEXTS = {"csv", "jsonl"}


class BadFile(Exception):
    """An error of a file as a whole; its text is a sentence for people, as `checks.phrase` has it."""

    def __init__(self, message: str) -> None:
        super().__init__(phrase(message))


@dataclass(frozen=True)
class DeclaredColumn:
    """A declared column: its name, its type as people write it (`label`), its Arrow type, and its nullability."""

    name: str
    label: str
    kind: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class FileReading:
    """How the files of a dataset are read; see `LandingOptions`.

    Attributes:
        nulls: the texts that mean NULL.
        ended: whether the last line must end in a line break.
        extra: whether columns that are not declared are ignored.
        keys: partition columns that a file may contain too; their values must agree with its name.
    """

    columns: tuple[DeclaredColumn, ...]
    separator: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    header: str = "in order"
    nulls: frozenset[str] = frozenset({"NA"})
    ended: bool = True
    extra: bool = False
    spelling: Spelling = field(default=Spelling())
    keys: tuple[DeclaredColumn, ...] = ()

    @property
    def known_names(self) -> set[str]:
        """The names of the columns that a file may have."""
        return {column.name for column in (*self.columns, *self.keys)}

    @property
    def names(self) -> list[str]:
        """The names of the declared columns, in order."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class FileSource:
    """A file: its URI, its format, and its compression ("": none)."""

    uri: str
    format: str
    compression: str = ""

    @property
    def unit(self) -> str:
        """The unit of `RowProblem.place`: `line` for text formats, else `row`."""
        return "line" if self.format in _TEXTS else "row"


def refuse_columns(names: Sequence[str], reading: FileReading) -> None:
    """Raise BadFile where the columns of a Parquet or Avro file are not the declared ones, in any order."""
    wanted = reading.names
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in reading.known_names and not reading.extra]
    differences = [f"missing {', '.join(missing)}"] if missing else []
    differences += [f"not declared {', '.join(extra)}"] if extra else []
    # Of columns of one name nobody knows which is meant.
    twice = sorted({name for name in names if name in reading.known_names and names.count(name) > 1})
    differences += [f"twice {', '.join(twice)}"] if twice else []
    if differences:
        raise BadFile(f"its columns are not the declared ones: {'; '.join(differences)}.")


def first_line(error: BaseException) -> str:
    """The first line of an error of another library, at most 200 characters, without a full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
