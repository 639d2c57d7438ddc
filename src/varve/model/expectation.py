"""Conditions that a staged batch must meet before it is published: write, audit, publish.

Not here: evaluating them on a staged batch (varve/stores/expectations.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from varve.model.errors import VarveError


class Of(StrEnum):
    """Whether the condition of an expectation is evaluated for each row or once for a partition."""

    ROW = "row"
    """It must be true for every row: `sold >= 0`. As with a CHECK in SQL, NULL is no violation."""
    PARTITION = "partition"
    """It must be true of the rows of a partition together, even if it is empty: `count(*) > 0`. NULL is a violation."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in Spark SQL over the data and partition columns; messages of failures show its name."""

    name: str
    condition: str
    of: Of = Of.ROW

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise VarveError(f"expectation {self.name!r}: a name has lower-case letters, digits and _ only.")
        if not self.condition.strip():
            raise VarveError(f"expectation {self.name}: the condition is empty; write one like 'sold >= 0'.")

    def __str__(self) -> str:
        return f"{self.name} ({self.condition})"
