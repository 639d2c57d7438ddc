"""Lines of JSON, and their values as PostgreSQL writes them.

Not here: what an object of a line means (wal2json.py, debezium.py, change_events.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.model.errors import BadInput

if TYPE_CHECKING:
    from varve.cdc.event import Text


class _Number(int):
    """A whole number of the JSON, which is not a text."""


def parse(line: str, number: int, line_of: str) -> dict[str, Any]:
    """The JSON object of a line; its numbers keep their text. Raises BadInput that names the line."""
    try:
        parsed_object = json.loads(line, parse_float=str, parse_int=_Number, parse_constant=str)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{line_of} {number} is no JSON ({error}): {line[:80]!r}. Nothing was taken from it on."
        ) from error
    if not isinstance(parsed_object, dict):
        raise BadInput(f"{line_of} {number} is no JSON object: {line[:80]!r}. Nothing was taken from it on.")
    return parsed_object


def text(value: Any, kind: str = "") -> Text:
    """A JSON value of a type of PostgreSQL ("": not told) in PostgreSQL's output format.

    wal2json leaves out how the text of a bytea begins, of which only the type tells.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return f"\\x{value}" if kind == "bytea" and not value.startswith("\\x") else value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    return json.dumps(value)
