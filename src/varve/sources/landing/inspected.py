"""The result of inspecting a whole landing file, and the hash that says which content it has.

Not here: inspecting one (inspection.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO

from varve.services.files import open_files

BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Inspected:
    """A landing file with the declared columns and a proper end: its size in bytes and a hash of its content."""

    uri: str
    size: int
    fingerprint: str


def new_fingerprint() -> hashlib.blake2b:
    """What the fingerprint of a file is made with: update it with all its bytes."""
    return hashlib.blake2b(digest_size=16)


def fingerprint_of(file: IO[bytes]) -> str:
    """The fingerprint of an open file, of which all is read."""
    digest = new_fingerprint()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def content_of(uri: str) -> str:
    """The fingerprint of the file that lies there; "" where there is none. Raises OSError where it cannot be read."""
    files, path = open_files(uri)
    try:
        with files.open(path, "rb") as file:
            return fingerprint_of(file)
    except FileNotFoundError:
        return ""
