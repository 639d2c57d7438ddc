"""Values of Spark as text in a table, and as values that JSON can hold.

Not here: what the rows are of.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from varve.cli.printing import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LONGEST = 60


def plain(value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    """A value for JSON: decimals, dates and bytes as texts, and numbers that JSON does not have too."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def text(value: Any) -> str:
    """A value for a cell of a table; long ones are cut."""
    if value is None:
        return "NULL"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ").replace("+00:00", "Z")
    shown = value if isinstance(value, str) else str(plain(value))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def table_of(columns: Sequence[tuple[str, str]], rows: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """A table of rows; below the name of each column is its type."""
    table = Table(title=title or None, title_justify="left")
    for name, kind in columns:
        table.add_column(f"{escaped(name)}\n[dim]{escaped(kind)}[/]")
    for row in rows:
        table.add_row(*[f"[dim]{cell}[/]" if row[name] is None else escaped(cell)
                        for name, _ in columns for cell in [text(row[name])]])  # fmt: skip
    return table


def escaped(words: str) -> str:
    """A text that a table shows as it is."""
    from rich.markup import escape

    return escape(words)
