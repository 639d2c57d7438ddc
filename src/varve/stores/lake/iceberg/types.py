"""What Iceberg calls the types of columns, which changes of a type its readers follow, and partition values.

Not here: the metadata that says so (metadata.py).
"""

from __future__ import annotations

import datetime as dt
import struct
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any

from varve.model.partitions.key import parse_path
from varve.model.schema import ColumnType, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.schema import Column

_SIMPLE = {
    Kind.STRING: "string", Kind.BOOLEAN: "boolean", Kind.TINYINT: "int", Kind.SMALLINT: "int", Kind.INT: "int",
    Kind.BIGINT: "long", Kind.FLOAT: "float", Kind.DOUBLE: "double", Kind.DATE: "date", Kind.TIMESTAMP: "timestamptz",
    Kind.TIMESTAMP_NTZ: "timestamp", Kind.BINARY: "binary",
}  # fmt: skip
_FOLLOWED = {("int", "long"), ("float", "double")}
_EPOCH = dt.date(1970, 1, 1)
_FIRST_INSTANT = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a clock time, or one of UTC


def fields_of(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The fields of an Iceberg schema, as its JSON has them; ids of the columns first, then those of their parts.

    Every field may be NULL: batches of earlier declarations may lack it.
    """
    ids = count(1)
    numbered = [(next(ids), column) for column in columns]
    return [
        {
            "id": number, "name": column.name, "required": False, "type": type_of(column.type, ids),
            **({"doc": column.comment} if column.comment else {}),
        }
        for number, column in numbered
    ]  # fmt: skip


def type_of(kind: ColumnType, ids: Iterator[int]) -> Any:
    """An Iceberg type as its JSON has it; parts of nested types take the next ids."""
    if kind.kind is Kind.DECIMAL:
        return f"decimal({kind.digits[0]}, {kind.digits[1]})"
    if kind.kind is Kind.ARRAY:
        element = next(ids)
        return {
            "type": "list", "element-id": element, "element": type_of(kind.parts[0][1], ids), "element-required": False
        }  # fmt: skip
    if kind.kind is Kind.MAP:
        key, value = next(ids), next(ids)
        return {
            "type": "map", "key-id": key, "key": type_of(kind.parts[0][1], ids), "value-id": value,
            "value": type_of(kind.parts[1][1], ids), "value-required": False,
        }  # fmt: skip
    if kind.kind is Kind.STRUCT:
        parts = [(next(ids), name, part) for name, part in kind.parts]
        fields = [
            {"id": number, "name": name, "required": False, "type": type_of(part, ids)} for number, name, part in parts
        ]
        return {"type": "struct", "fields": fields}
    return _SIMPLE[kind.kind]


def name_mapping(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mapping of names to ids. Without it Spark takes the columns of files without ids by their position."""
    return [{"field-id": field["id"], "names": [field["name"]], **_mapped_parts(field["type"])} for field in fields]


def _mapped_parts(kind: Any) -> dict[str, Any]:
    if not isinstance(kind, dict):
        return {}
    if kind["type"] == "struct":
        return {"fields": name_mapping(kind["fields"])}
    names = ("element",) if kind["type"] == "list" else ("key", "value")
    return {"fields": name_mapping([{"id": kind[f"{name}-id"], "name": name, "type": kind[name]} for name in names])}


def follows(before: ColumnType, after: ColumnType) -> bool:
    """Whether engines read files of the first type right where the Iceberg schema has the second.

    Varve widens more: INT to DOUBLE, which most engines refuse, and a decimal's scale, which Spark with Iceberg reads
    as other numbers.
    """
    if before == after:
        return True
    if before.nested or after.nested:
        return False
    if before.kind is Kind.DECIMAL and after.kind is Kind.DECIMAL:
        return before.digits[1] == after.digits[1] and before.digits[0] <= after.digits[0]
    if Kind.DECIMAL in {before.kind, after.kind}:
        return False
    pair = _SIMPLE[before.kind], _SIMPLE[after.kind]
    return pair[0] == pair[1] or pair in _FOLLOWED


def partition_values(path: str, types: Mapping[str, str]) -> dict[str, Any]:
    """The values of a partition by the catalog's spelling, in Iceberg's own form: a date is its number of days."""
    texts = dict(parse_path(path))
    return {name: _parsed(texts[name], kind) for name, kind in types.items()}


def _parsed(text: str, kind: str) -> Any:
    if kind == "date":
        return days(dt.date.fromisoformat(text))
    if kind == "timestamptz":
        return microseconds(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC))
    return int(text) if kind in {"int", "long"} else text


def days(date: dt.date) -> int:
    """A date as Iceberg has it."""
    return (date - _EPOCH).days


def microseconds(moment: dt.datetime) -> int:
    """A moment as Iceberg has it; one without a zone is a clock time."""
    clock = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return (clock - _FIRST_INSTANT) // dt.timedelta(microseconds=1)


def bound(text: str, kind: str) -> bytes | None:
    """A lowest or highest value, of which the catalog keeps the text, as Iceberg writes it; None where it cannot be."""
    if kind == "string":
        # Longer texts would make manifests large; a bound that is cut off would have to be rounded.
        return text.encode() if len(text) <= 256 else None
    if kind in {"int", "long", "date"}:
        return struct.pack("<q" if kind == "long" else "<i", _parsed(text, kind))
    if kind in {"timestamp", "timestamptz"}:
        return struct.pack("<q", microseconds(dt.datetime.fromisoformat(text)))
    if kind.startswith("decimal"):
        number = int(Fraction(text) * 10 ** int(kind.rstrip(")").split(",")[1]))
        return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    # Not of floats: a file's lowest and highest say nothing of NaN and of the sign of zero.
    return None


def packed(value: Any, kind: str) -> bytes:
    """A partition value in Iceberg's own form, as the manifest list has it."""
    if kind == "string":
        return str(value).encode()
    return struct.pack("<i" if kind in {"date", "int"} else "<q", value)
