"""wal2json as events: format version 2 (a JSON object per action), and version 1 (one per transaction).

wal2json must run with `include-xids`, `include-timestamp`, `include-lsn` and, in version 2, `include-transaction`.
Version 1 silently leaves TRUNCATE out: it is read only where it is asked for by its name. It leaves the NULLs of old
rows out as well, which matters for a table without a key. wal2json writes null for NaN and infinities; use pgoutput
where these occur.

Not here: where the lines come from.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from varve.cdc.event import ChangeEvent, ChangeType, Text, event, parse_lsn
from varve.cdc.protocol.json_lines import parse, text, whole
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KINDS = {"I": ChangeType.INSERT, "U": ChangeType.UPDATE, "D": ChangeType.DELETE, "T": ChangeType.TRUNCATE}
_KINDS_OF_V1 = {"insert": ChangeType.INSERT, "update": ChangeType.UPDATE, "delete": ChangeType.DELETE}


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
                "taken. Is it format version 1? Ask for 'format-version' '2', or declare WAL2JSON_V1, which tells of "
                "no TRUNCATE."
            )
        if action == "B":
            held, seq, inside = [], 0, True
        elif action == "C":
            end, at, xid = _committed(action_object, relation, number)
            yield from (replace(event, commit_lsn=end, timestamp=at, xid=xid) for event in held)
            held, inside = [], False
        elif isinstance(action, str) and action in _KINDS:
            seq += 1
            table = f"{action_object.get('schema')}.{action_object.get('table')}"
            if table == relation:
                try:
                    held.append(_event(_KINDS[action], action_object, relation, key, seq))
                except ValueError as error:
                    raise BadInput(f"{relation}: wal2json line {number}: {error}. Nothing was taken.") from error
            else:
                other_tables[table] += 1
        elif action != "M":
            raise BadInput(
                f"{relation}: wal2json line {number} has the unknown action {repr(action)[:80]}. Nothing was taken."
            )
    if whole and (inside or held):
        raise BadInput(
            f"{relation}: the wal2json lines end within a transaction, of which {len(held)} changes are there. Nothing "
            "of it was taken. Write whole transactions into a file."
        )


def read_v1(
    lines: Iterable[str], *, relation: str, key: Sequence[str], columns: Sequence[str] = (),
    others: Counter[str] | None = None,
) -> Iterator[ChangeEvent]:  # fmt: skip
    """The events of one table from lines of format version 1, each a whole transaction.

    Of a table without a key, an old row is NULL in those of the `columns` that it was sent without. Changes of other
    tables are counted in `others`. A TRUNCATE is not among the changes of this version.

    Raises BadInput that names the line where it is no wal2json of version 1.
    """
    other_tables = Counter() if others is None else others
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        transaction = parse(line, number, "wal2json line")
        if not isinstance(changes := transaction.get("change"), list):
            raise BadInput(
                f"{relation}: wal2json line {number} has no list of changes: {line[:80]!r}. Nothing of it was taken. "
                "Is it format version 2? Declare WAL2JSON. With 'write-in-chunks' a transaction is not one line: leave "
                "it out."
            )
        of_table = []
        for seq, change in enumerate(changes, 1):
            if not isinstance(change, dict) or not isinstance(change.get("oldkeys") or {}, dict):
                raise BadInput(
                    f"{relation}: wal2json line {number} has a change of no form: {str(change)[:80]}. Nothing was "
                    "taken."
                )
            if (kind := change.get("kind")) == "message":
                continue
            if not isinstance(kind, str) or kind not in _KINDS_OF_V1:
                raise BadInput(
                    f"{relation}: wal2json line {number} has the unknown kind {repr(kind)[:80]}. Nothing was taken."
                )
            if (table := f"{change.get('schema')}.{change.get('table')}") != relation:
                other_tables[table] += 1
                continue
            new = _columns_of_v1(change, "column", relation, number)
            identity = _columns_of_v1(change.get("oldkeys") or {}, "key", relation, number)
            if not key and "oldkeys" in change:
                identity = {**dict.fromkeys(columns), **identity}
            of_table.append(_row_event(_KINDS_OF_V1[kind], (new, identity), relation=relation, key=key, seq=seq))
        if of_table:
            end, at, xid = _committed(transaction, relation, number)
            yield from (replace(each, commit_lsn=end, timestamp=at, xid=xid) for each in of_table)


def _columns_of_v1(image: dict[str, Any], prefix: str, relation: str, number: int) -> dict[str, Text]:
    fields = [f"{prefix}names", f"{prefix}values", f"{prefix}types"]
    names, values, types = (image.get(each) or [] for each in fields)
    for field, found in zip(fields, (names, values, types), strict=True):
        if not isinstance(found, list):
            raise BadInput(
                f"{relation}: wal2json line {number} has {field} that are no list: {str(found)[:80]}. Nothing of its "
                "transaction was taken."
            )
    types = types or [""] * len(names)
    if not len(names) == len(values) == len(types):
        raise BadInput(
            f"{relation}: wal2json line {number} has {len(names)} {prefix}names, {len(values)} {prefix}values and "
            f"{len(types)} {prefix}types. Nothing of its transaction was taken."
        )
    try:
        return {str(name): text(value, kind) for name, value, kind in zip(names, values, types, strict=True)}
    except ValueError as error:
        raise BadInput(f"{relation}: wal2json line {number} {error}. Nothing of its transaction was taken.") from error


def _committed(action_object: dict[str, Any], relation: str, number: int) -> tuple[int, str, int]:
    """The LSN, the time and the id of a transaction."""
    if "nextlsn" not in action_object or "timestamp" not in action_object:
        raise BadInput(
            f"{relation}: the commit in wal2json line {number} has no nextlsn or timestamp, without which events have "
            "no order. Nothing of its transaction was taken. Ask for 'include-lsn' and 'include-timestamp'."
        )
    lsn, timestamp = action_object["nextlsn"], action_object["timestamp"]
    try:
        dt.datetime.fromisoformat(timestamp)
        place = whole(parse_lsn(str(lsn)), "nextlsn")
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{relation}: the commit in wal2json line {number} has the nextlsn {lsn!r} and the timestamp "
            f"{timestamp!r}, which are none. Nothing of its transaction was taken."
        ) from error
    try:
        return place, timestamp, whole(action_object.get("xid") or 0, "xid")
    except ValueError as error:
        raise BadInput(
            f"{relation}: the commit in wal2json line {number} {error}. Nothing of its transaction was taken."
        ) from error


def _event(kind: ChangeType, action_object: dict[str, Any], relation: str, key: Sequence[str], seq: int) -> ChangeEvent:
    images = _row(action_object.get("columns")), _row(action_object.get("identity"))
    return _row_event(kind, images, relation=relation, key=key, seq=seq)


def _row(columns: Sequence[dict[str, Any]] | None) -> dict[str, Text]:
    """The texts by column. Raises ValueError for what is no list of columns."""
    try:
        return {str(column["name"]): text(column["value"], column.get("type", "")) for column in columns or ()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{str(columns)[:80]} is no list of columns with name and value") from error


def _row_event(
    kind: ChangeType, images: tuple[dict[str, Text], dict[str, Text]], *, relation: str, key: Sequence[str], seq: int
) -> ChangeEvent:
    """The event with the row after it, and the old key or whole old row."""
    new, identity = images
    # Under FULL the identity is the whole row, and has the values that the new image leaves out as unchanged.
    full = bool(identity) and not set(identity) <= set(key)
    if full and kind is ChangeType.UPDATE:
        new = {**{name: value for name, value in identity.items() if name not in new}, **new}
    old_key = {name: identity[name] for name in key if name in identity}
    return event(kind, new=new, old_key=old_key, old=identity if full else None, relation=relation, seq=seq)
