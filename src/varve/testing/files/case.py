"""`Case`: one test of a dataset as its file has it, before the dataset and its columns are looked at.

Not here: reading a file (reading.py), and running a test (varve/testing/cases).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from varve.testing.files.nodes import Mapping, Node, Scalar
    from varve.testing.files.problems import Place

# How far two floating-point numbers may differ, relative to the larger one, unless the test says otherwise.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Row:
    """A row as it is written: a value for each column that it names.

    Attributes:
        number: its place in its table, counted from 1.
    """

    place: Place
    number: int
    values: dict[str, tuple[Scalar, Node]]


@dataclass(frozen=True)
class Rows:
    """The rows of a table, as they are written in the file of the test or in a file of their own."""

    place: Place
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Case:
    """One test of a dataset.

    Attributes:
        file: the file that it is in.
        dataset: the dataset that is tested, as it is written.
        partitions: the partitions of the run; none for a dataset without partitions.
        inputs: the rows of each dataset that it reads.
        expected: the rows that it must make; None where it must fail.
        fails: a part of the message with which the run must fail; None where it must make rows.
        exact: whether the expected rows name every column; otherwise those that a row does not name may be anything.
        tolerance: how far floating-point numbers may differ, relative to the larger one.
    """

    place: Place
    file: Path
    name: str
    dataset: Scalar
    partitions: tuple[Mapping, ...]
    inputs: dict[str, tuple[Scalar, Rows]]
    expected: Rows | None
    fails: str | None
    exact: bool = False
    tolerance: float = TOLERANCE

    @property
    def title(self) -> str:
        """`dataset: name`, as results show it."""
        return f"{self.dataset.text}: {self.name}"
