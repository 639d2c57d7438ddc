"""What a look at a whole landing file has found.

Not here: the look itself (landing.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inspected:
    """What arrived for a partition, whose columns and end are as they should be, with a fingerprint of its content."""

    uri: str
    size: int
    fingerprint: str
