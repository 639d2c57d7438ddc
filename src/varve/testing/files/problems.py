"""What is wrong with files of tests: `file:line: what was found, what to write`, each in one line, all at once.

Not here: the problems of SQL files (varve/sql/syntax/errors.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of a file of tests, counted from 1; `path` is what messages show, relative to the project."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """What was found at a place, and what to write instead."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class TestFileErrors(VarveError):
    """All problems in files of tests. Nothing was run."""

    # Not a test, whatever its name says to pytest.
    __test__ = False

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))
