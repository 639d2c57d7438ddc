"""The problems of SQL files and how they are shown: `file:line:col`, the line, a caret and a suggestion.

All problems of all files are collected and raised as one `SqlErrors`, so that one run shows them all.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varve.model.function import SqlFunction


_NO_UTF_8 = re.compile("[\udc80-\udcff]")
# Characters that a terminal cannot show.
_UNSHOWN = re.compile("[\udc80-\udcff\0-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class SourceFile:
    """One SQL file.

    Attributes:
        path: the path that messages show, relative to the project.
        text: the whole file.
        root: the folder to which `path`, and the programs that the file names, are relative; "": the working directory.
        functions: the functions of the project that its queries may call.
        unreadable: why the file cannot be read; empty where it can. Then it has no text.
    """

    path: str
    text: str
    root: str = ""
    functions: tuple[SqlFunction, ...] = field(default=(), compare=False, repr=False)
    unreadable: str = ""

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for place, char in enumerate(self.text):
            if char == "\n":
                starts.append(place + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character, both counted from 1."""
        import bisect

        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a character by its line and column, both counted from 1."""
        return min(self._starts[min(line, len(self._starts)) - 1] + column - 1, len(self.text))

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1."""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


def source_of(content: bytes, path: str, root: str = "") -> SourceFile:
    """Decode a file, without the UTF-8 mark that Windows adds, and with a line feed as the only end of a line.

    Bytes that are no UTF-8 are kept in the text as surrogates, which `undecodable` finds.
    """
    text = content.decode("utf-8-sig", errors="surrogateescape")
    return SourceFile(path, text.replace("\r\n", "\n").replace("\r", "\n"), root)


def undecodable(text: str) -> re.Match[str] | None:
    """Find the first byte that is no UTF-8, in a text from `source_of`; None where there is none."""
    return _NO_UTF_8.search(text)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range of characters of a file: from `start` (included) to `end` (excluded)."""

    start: int
    end: int


@dataclass(frozen=True)
class Problem:
    """A problem in a file: what was found, and what to write instead."""

    source: SourceFile
    span: Span
    message: str

    @property
    def place(self) -> str:
        """`file:line:col`."""
        line, column = self.source.position(self.span.start)
        return f"{self.source.path}:{line}:{column}"

    def __str__(self) -> str:
        number, column = self.source.position(min(self.span.start, len(self.source.text)))
        line = self.source.line(number)
        length = max(1, min(self.span.end - self.span.start, len(line) - column + 1))
        # Tabs stay tabs, so that the caret stands under the right character.
        indent = "".join(char if char == "\t" else " " for char in line[: column - 1])
        shown = _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", line)
        return f"{self.place}: {self.message}\n    {shown}\n    {indent}{'^' * length}"


def defect_in(source: SourceFile, span: Span, error: Exception) -> Problem:
    """The problem of a file that Varve itself cannot work with: a defect of Varve, and no reason to stop the others."""
    *_, frame = traceback.extract_tb(error.__traceback__)
    where = f"{PurePath(frame.filename).name}:{frame.lineno}"
    what = f"{type(error).__name__} in {where}" + (f": {error}" if str(error) else "")
    return Problem(
        source, span,
        f"this dataset meets a defect of Varve ({what}). It cannot be used; all others can. Please report it, with "
        "this file.",
    )  # fmt: skip


class SqlError(VarveError):
    """A problem after which the parser cannot continue in this clause or file."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


class SqlErrors(VarveError):
    """All problems in the SQL files of a project."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(set(problems), key=lambda problem: (problem.source.path, problem.span, problem.message))
        self.problems = tuple(ordered)
        super().__init__("\n".join(map(str, ordered)))
