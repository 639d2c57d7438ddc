"""Plain events, one JSON object per line: what a program that captures changes itself writes.

    {"changeType": "update", "timestamp": "2026-11-01T10:00:00Z", "columnNames": ["id", "name"],
     "columnValues": ["id1", "Angela"], "oldKeyNames": ["id"], "oldKeyValues": ["id1"]}

An insert has no old key, a delete no columns. The order is that of the timestamps, and of the lines where these are
equal. A timestamp is ISO 8601 (UTC unless it says otherwise), or a number of seconds since 1970, from 10^11 on of
milliseconds and from 10^14 on of microseconds: it becomes the LSN, in microseconds, unless the line has a `commitLsn`.
Further fields are `seq` (the place within a timestamp), `xid`, `relation`, `oldNames` with `oldValues` (the whole old
row).

Not here: events as rows of Arrow and Spark (varve/cdc/resolve/event_frame.py), which have the same names.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from varve.cdc.event import ChangeEvent, ChangeType, Text, event, parse_lsn
from varve.cdc.protocol.json_lines import parse, text, whole
from varve.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FROM_MILLISECONDS, _FROM_MICROSECONDS = 10**11, 10**14
# So many digits more than the first one has no number of microseconds until the year 9999.
_MOST_DIGITS = 17
_FIELDS = frozenset({
    "changeType", "timestamp", "columnNames", "columnValues", "oldKeyNames", "oldKeyValues", "relation", "commitLsn",
    "seq", "xid", "oldNames", "oldValues", "schemaVersion",
})  # fmt: skip


def read(
    lines: Iterable[str], *, relation: str, key: Sequence[str], others: Counter[str] | None = None
) -> Iterator[ChangeEvent]:
    """The events of one table; a line without `relation` is of this one.

    Changes of other tables are counted in `others`.

    Raises BadInput that names the line and what is wrong with it.
    """
    other_tables = Counter() if others is None else others
    events_at: Counter[int] = Counter()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = parse(line, number, "event line")
        where = f"{relation}: event line {number}"
        if unknown := sorted(set(fields) - _FIELDS):
            raise BadInput(f"{where} has the unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS))}.")
        if (table := fields.get("relation") or relation) != relation:
            other_tables[str(table)] += 1
            continue
        micros = _microseconds(fields.get("timestamp"), where)
        lsn = _lsn(fields["commitLsn"], where) if fields.get("commitLsn") is not None else micros
        events_at[lsn] += 1
        change = event(
            _kind(fields, where),
            new=_image(fields, "columnNames", "columnValues", where),
            old_key=_image(fields, "oldKeyNames", "oldKeyValues", where),
            old=_image(fields, "oldNames", "oldValues", where),
            relation=relation,
            commit_lsn=lsn,
            seq=_whole(fields, "seq", where, events_at[lsn]),
            xid=_whole(fields, "xid", where, 0),
            timestamp=(_EPOCH + micros * _MICROSECOND).isoformat(timespec="microseconds"),
        )
        _refuse_incomplete(change, key, where)
        yield change


def _kind(fields: dict[str, Any], where: str) -> ChangeType:
    try:
        return ChangeType(str(fields.get("changeType")).lower())
    except ValueError as error:
        raise BadInput(
            f"{where} has the changeType {fields.get('changeType')!r}: write {', '.join(ChangeType)}."
        ) from error


def _image(fields: dict[str, Any], names_field: str, values_field: str, where: str) -> dict[str, Text]:
    names, values = fields.get(names_field) or [], fields.get(values_field) or []
    if not isinstance(names, list) or not isinstance(values, list) or len(names) != len(values):
        raise BadInput(f"{where} has not as many {values_field} as {names_field}: {values!r} and {names!r}.")
    if odd := [name for name in names if not isinstance(name, str)]:
        raise BadInput(f"{where} has {odd[0]!r} in {names_field}, which is no name of a column.")
    if len(set(names)) != len(names):
        raise BadInput(f"{where} names a column twice in {names_field}: {', '.join(names)}.")
    try:
        return {str(name): text(value) for name, value in zip(names, values, strict=True)}
    except ValueError as error:
        raise BadInput(f"{where} {error}.") from error


def _refuse_incomplete(change: ChangeEvent, key: Sequence[str], where: str) -> None:
    """Raise BadInput where an event does not say of which row it is, or what the row is after it."""
    kind = change.change_type
    if kind in (ChangeType.INSERT, ChangeType.UPDATE) and not change.column_names:
        raise BadInput(f"{where} is an {kind} without columnNames and columnValues.")
    if kind is ChangeType.INSERT and (absent := [name for name in key if name not in change.column_names]):
        raise BadInput(f"{where} is an insert without the key column {', '.join(absent)}.")
    if kind in (ChangeType.UPDATE, ChangeType.DELETE):
        if key and set(change.old_key_names) != set(key):
            found = ", ".join(change.old_key_names) or "nothing"
            raise BadInput(f"{where} is of the old key {found}, and the key is {', '.join(key)}.")
        if not key and not change.old_names:
            raise BadInput(f"{where}: without a key, oldNames and oldValues say which row it was.")


def _microseconds(timestamp: Any, where: str) -> int:
    """An instant in microseconds since 1970."""
    problem = f"{where} has the timestamp {timestamp!r}: write ISO 8601, or a number of seconds since 1970."
    if timestamp is None or isinstance(timestamp, bool):
        raise BadInput(problem)
    try:
        given = Decimal(str(timestamp))
        if given.is_finite() and given.adjusted() > _MOST_DIGITS:
            # Written out, a few letters may be a million digits.
            raise BadInput(problem)
        unit = 1_000_000 if given < _FROM_MILLISECONDS else 1_000 if given < _FROM_MICROSECONDS else 1
        micros = int(given * unit)
    except (ArithmeticError, ValueError):
        try:
            moment = dt.datetime.fromisoformat(str(timestamp))
        except ValueError as error:
            raise BadInput(problem) from error
        micros = ((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND
    if not 0 <= micros < 253_402_300_800_000_000:
        raise BadInput(problem)
    return micros


def _lsn(given: Any, where: str) -> int:
    try:
        lsn = whole(parse_lsn(given) if isinstance(given, str) and "/" in given else given, "commitLsn")
    except ValueError as error:
        raise BadInput(f"{where} has the commitLsn {given!r}: write a number, or 16/B374D848.") from error
    return lsn


def _whole(fields: dict[str, Any], name: str, where: str, otherwise: int) -> int:
    if (given := fields.get(name)) is None:
        return otherwise
    try:
        return whole(given, name)
    except ValueError as error:
        raise BadInput(f"{where} has the {name} {given!r}: write a whole number.") from error
