"""The result of inspecting a whole landing file.

Not here: inspecting one (landing.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inspected:
    """A landing file with the declared columns and a proper end: its size in bytes and a hash of its content."""

    uri: str
    size: int
    fingerprint: str
