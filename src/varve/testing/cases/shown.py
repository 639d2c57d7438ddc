"""The outcome of a test for people: a table of the rows that differ; and for programs: plain values.

Not here: the list of all tests (varve/cli/tests/report.py).
"""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any

from varve.model.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from varve.model.schema import ColumnType
    from varve.testing.cases.compare import Difference
    from varve.testing.cases.running import Outcome

_ROWS = 20
_CELL = 60
_WIDTH = 120


def difference_table(difference: Difference) -> Table:
    """Return a table of the rows that differ: `-` was not made, `+` was not expected, `~` has other values."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    for name in difference.columns:
        table.add_column(name, overflow="fold")
    left_out = 0
    for mark, style, values, changed in _lines(difference):
        if table.row_count == _ROWS:
            left_out += 1
            continue
        cells = [
            Text(values[name], style=style or ("bold yellow" if name in changed else ""))
            if name in values
            else Text("")
            for name in difference.columns
        ]
        table.add_row(Text(mark, style=style or "yellow"), *cells)
    if left_out:
        table.caption = f"and {left_out} more rows"
        table.caption_justify = "left"
    return table


def outcome_text(outcome: Outcome, width: int = _WIDTH) -> str:
    """Return why a test failed as plain text: the message, and the table of rows where there is one."""
    from rich.console import Console

    if outcome.difference is None:
        return outcome.message
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, emoji=False)
    console.print(difference_table(outcome.difference))
    legend = "-  not made   +  not expected   ~  expected → made"
    return f"{outcome.message}\n{file.getvalue().rstrip()}\n{legend}"


def difference_values(difference: Difference) -> dict[str, Any]:
    """Return the rows that differ as values of JSON: every cell is text, or null."""
    types = difference.types
    return {
        "missing": [_texts(row, types) for row in difference.missing],
        "unexpected": [_texts(row, types) for row in difference.unexpected],
        "changed": [
            {
                "expected": _texts(changed.expected, types),
                "made": _texts(changed.made, types),
                "columns": list(changed.columns),
            }
            for changed in difference.changed
        ],
    }


def cell_text(value: Any, kind: ColumnType) -> str:
    """Return a value as a file of tests writes it; NULL as `null`."""
    if value is None:
        return "null"
    if kind.nested:
        return json.dumps(_plain(value, kind), ensure_ascii=False)
    if kind.kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind.kind is Kind.BINARY:
        return f"0x{value.hex()}"
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def _plain(value: Any, kind: ColumnType) -> Any:
    """A nested value as JSON has it: numbers, texts, lists and mappings."""
    if value is None:
        return None
    if kind.kind is Kind.ARRAY:
        ((_, element),) = kind.parts
        return [_plain(item, element) for item in value]
    if kind.kind is Kind.STRUCT:
        return {name: _plain(value[name], field) for name, field in kind.parts}
    if kind.kind is Kind.MAP:
        (_, key_type), (_, value_type) = kind.parts
        return {str(_plain(key, key_type)): _plain(item, value_type) for key, item in value}
    return value if isinstance(value, bool | int | float | str) else cell_text(value, kind)


def _texts(row: Mapping[str, Any], types: Mapping[str, ColumnType]) -> dict[str, str | None]:
    return {name: None if value is None else cell_text(value, types[name]) for name, value in row.items()}


def _lines(difference: Difference) -> Sequence[tuple[str, str, dict[str, str], tuple[str, ...]]]:
    """Mark, style, cells by column, and which of them changed; rows that changed come first."""
    types = difference.types
    lines: list[tuple[str, str, dict[str, str], tuple[str, ...]]] = []
    for changed in difference.changed:
        cells = {}
        for name in difference.columns:
            made = _short(cell_text(changed.made[name], types[name]))
            expected = _short(cell_text(changed.expected.get(name), types[name]))
            cells[name] = f"{expected} → {made}" if name in changed.columns else made
        lines.append(("~", "", cells, changed.columns))
    for mark, style, rows in (("-", "red", difference.missing), ("+", "green", difference.unexpected)):
        lines += [
            (
                mark,
                style,
                {name: _short(cell_text(row[name], types[name])) for name in difference.columns if name in row},
                (),
            )
            for row in rows
        ]
    return lines


def _short(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
