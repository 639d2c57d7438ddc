"""The hash of the rows of a batch as text: `rows:sum:columns`.

The sum is that of a hash of each row; `columns` is a hash of the names and types, in order, of the columns that were
hashed, because the values alone do not tell which of them is of which column. Batches of earlier versions have no
`columns`: they equal one another, and no newer batch.

Not here: hashing rows (varve/stores/folders/content.py).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.schema import Column


def content_of(sums: str, columns: Sequence[Column]) -> str:
    """The text for rows of these columns, with how many there are and their sum as `rows:sum`."""
    named = "\0".join(f"{column.name} {column.type}" for column in columns)
    return f"{sums}:{blake2b(named.encode(), digest_size=4).hexdigest()}"


def sums_of(content: str) -> str:
    """`rows:sum` of a text."""
    return ":".join(content.split(":")[:2])


def added_content(before: str | None, added: str | None) -> str | None:
    """The text for the rows of two batches together; None where one of them has none."""
    if before is None or added is None:
        return None
    rows, total, *columns = before.split(":")
    added_rows, added_total, *added_columns = added.split(":")
    sums = f"{int(rows) + int(added_rows)}:{(int(total, 16) + int(added_total, 16)) % (1 << 64):016x}"
    return ":".join([sums, *(columns if columns == added_columns else ())])
