"""wal2json format version 2 (a JSON object per action) as events.

wal2json must run with `include-xids`, `include-timestamp`, `include-lsn` and `include-transaction`. Version 1 is
refused because it silently drops TRUNCATE. wal2json writes null for NaN and infinities; use pgoutput where these occur.

Not here: where the lines come from.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from varve.cdc.event import ChangeEvent, ChangeType, Text, event, parse_lsn
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KINDS = {"I": ChangeType.INSERT, "U": ChangeType.UPDATE, "D": ChangeType.DELETE, "T": ChangeType.TRUNCATE}


def read(
    lines: Iterable[str], *, relation: str, key: Sequence[str], whole: bool = False, others: Counter[str] | None = None
) -> Iterator[ChangeEvent]:
    """The events of one table, transaction by transaction; a transaction without its commit is not yielded.

    Changes of other tables are counted in `others`.

    Raises BadInput that names the line where it is no wal2json of version 2; with `whole` also where the lines end
    within a transaction.
    """
    other_tables = Counter() if others is None else others
    held: list[ChangeEvent] = []
    seq, inside = 0, False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        action_object = parse(line, number, "wal2json line")
        action = action_object.get("action")
        if action is None:
            raise BadInput(
                f"{relation}: wal2json line {number} has no action: {line[:80]!r}. Nothing of its transaction was "
                "taken. Is it format version 1? Ask for 'format-version' '2'."
            )
        if action == "B":
            held, seq, inside = [], 0, True
        elif action == "C":
            end, at = _committed(action_object, relation, number)
            yield from (replace(event, commit_lsn=end, timestamp=at, xid=action_object.get("xid", 0)) for event in held)
            held, inside = [], False
        elif action in _KINDS:
            seq += 1
            table = f"{action_object.get('schema')}.{action_object.get('table')}"
            if table == relation:
                held.append(_event(_KINDS[action], action_object, relation, key, seq))
            else:
                other_tables[table] += 1
        elif action != "M":
            raise BadInput(f"{relation}: wal2json line {number} has the unknown action {action!r}. Nothing was taken.")
    if whole and (inside or held):
        raise BadInput(
            f"{relation}: the wal2json lines end within a transaction, of which {len(held)} changes are there. Nothing "
            "of it was taken. Write whole transactions into a file."
        )


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


def text(value: Any) -> Text:
    """A JSON value in PostgreSQL's output format."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    return json.dumps(value)


class _Number(int):
    """A whole number of the JSON, which is not a text."""


def _committed(action_object: dict[str, Any], relation: str, number: int) -> tuple[int, str]:
    if "nextlsn" not in action_object or "timestamp" not in action_object:
        raise BadInput(
            f"{relation}: the commit in wal2json line {number} has no nextlsn or timestamp, without which events have "
            "no order. Nothing of its transaction was taken. Ask for 'include-lsn' and 'include-timestamp'."
        )
    return parse_lsn(action_object["nextlsn"]), action_object["timestamp"]


def _event(kind: ChangeType, action_object: dict[str, Any], relation: str, key: Sequence[str], seq: int) -> ChangeEvent:
    new = {column["name"]: text(column["value"]) for column in action_object.get("columns", ())}
    identity = {column["name"]: text(column["value"]) for column in action_object.get("identity", ())}
    # Under FULL the identity is the whole row, and has the values that the new image leaves out as unchanged.
    full = bool(identity) and not set(identity) <= set(key)
    if full and kind is ChangeType.UPDATE:
        new = {**{name: value for name, value in identity.items() if name not in new}, **new}
    old_key = {name: identity[name] for name in key if name in identity}
    return event(kind, new=new, old_key=old_key, old=identity if full else None, relation=relation, seq=seq)
