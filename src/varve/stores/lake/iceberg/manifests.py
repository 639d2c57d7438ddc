"""Writes and reads manifests and manifest lists (Avro, format 2) of files that are added, kept and deleted.

The partitions of a table are divided among manifests by buckets: a month of days, or a share by a hash. A publish
writes only the manifests of the buckets that it touches. The bucket is in the manifest's name; nothing else knows it.

Not here: which files change (commit.py), and the document (metadata.py, snapshots.py).
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import uuid
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import fastavro

from varve.stores.lake.iceberg import types
from varve.stores.lake.iceberg.metadata import partition_types, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.stores.lake.iceberg.metadata import Document

EXISTING, ADDED, DELETED = 0, 1, 2
_COUNTED = ((EXISTING, "existing"), (ADDED, "added"), (DELETED, "deleted"))
# How many manifests share the partitions of a dataset without a time, and those of one month of others.
_SHARES, _SHARES_OF_MONTH = 64, 4
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}(?=-|$)")
_AVRO = {
    "date": {"type": "int", "logicalType": "date"}, "int": "int", "long": "long", "string": "string",
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataFile:
    """A parquet file of a batch.

    Attributes:
        path: its path or URI, as Spark has written it.
        partition: its partition in the catalog's spelling.
        bounds: the lowest and highest values of columns by their names, as text.
    """

    path: str
    partition: str
    rows: int
    size: int
    bounds: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of its batch."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a file of metadata, and the name that it gets."""

    name: str
    content: bytes


def bucket_of(path: str) -> str:
    """Which manifest has the files of a partition, for ever."""
    month = None
    others = []
    for step in path.split("/"):
        text = step.partition("=")[2]
        if month is None and (match := _MONTH.match(text)):
            month = match[0].replace("-", "")
        else:
            others.append(step)
    if month is None:
        return f"{zlib.crc32(path.encode()) % _SHARES:02d}"
    return f"{month}{zlib.crc32('/'.join(others).encode()) % _SHARES_OF_MONTH}" if others else month


def bucket_in(name: str) -> str:
    """The bucket of a manifest, by its name."""
    return name.rpartition("-b")[2].removesuffix(".avro")


def records(content: bytes) -> list[dict[str, Any]]:
    """The records of an Avro file."""
    return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]


def entry_of(file: DataFile, document: Document, kinds: Mapping[str, str], snapshot_id: int) -> dict[str, Any]:
    """The record of a file that a snapshot adds; it inherits its sequence number from its manifest.

    `kinds` are the types of the partition columns.
    """
    lower, upper = [], []
    if file.bounds:
        fields = {column["name"]: column for column in schema_of(document)["fields"]}
        for name, (low, high) in file.bounds.items():
            packed = [types.bound(text, str(fields[name]["type"])) for text in (low, high)] if name in fields else []
            if packed and None not in packed:
                lower.append({"key": fields[name]["id"], "value": packed[0]})
                upper.append({"key": fields[name]["id"], "value": packed[1]})
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {
            "content": 0,
            "file_path": file.path,
            "file_format": "PARQUET",
            "partition": types.partition_values(file.partition, kinds),
            "record_count": file.rows,
            "file_size_in_bytes": file.size,
            "lower_bounds": lower or None,
            "upper_bounds": upper or None,
        },
    }


def kept_entry(entry: dict[str, Any], inherited: int) -> dict[str, Any]:
    """The record of a file that stays, for another manifest; `inherited` is the number of the one that it is from."""
    if entry["status"] == ADDED:
        entry["sequence_number"] = entry["file_sequence_number"] = inherited
    entry["status"] = EXISTING
    return entry


def manifest(document: Document, bucket: str, entries: list[dict[str, Any]]) -> Written:
    """A manifest of these records."""
    schema, spec = schema_of(document), document["partition-specs"][0]
    about = {
        "schema": json.dumps(schema), "partition-spec": json.dumps(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]), "format-version": "2", "content": "data",
    }  # fmt: skip
    kinds = tuple(partition_types(document).items())
    return Written(f"{uuid.uuid4()}-b{bucket}.avro", _avro(_entry_schema(kinds), entries, about))


def row_of(
    document: Document, path: str, entries: list[dict[str, Any]], *, size: int, snapshot_id: int, sequence: int
) -> dict[str, Any]:
    """What the manifest list says of a manifest: what lets a reader leave it out."""
    alive = [entry["sequence_number"] or sequence for entry in entries if entry["status"] != DELETED]
    row: dict[str, Any] = {
        "manifest_path": path, "manifest_length": size, "partition_spec_id": 0, "content": 0,
        "sequence_number": sequence, "min_sequence_number": min(alive, default=sequence),
        "added_snapshot_id": snapshot_id, "partitions": [],
    }  # fmt: skip
    for status, label in _COUNTED:
        rows = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
        row |= {f"{label}_files_count": len(rows), f"{label}_rows_count": sum(rows)}
    for name, kind in partition_types(document).items():
        values = [_own_form(entry["data_file"]["partition"][name]) for entry in entries]
        known = [value for value in values if value is not None]
        row["partitions"].append(
            {
                "contains_null": len(known) < len(values),
                "lower_bound": types.packed(min(known), kind) if known else None,
                "upper_bound": types.packed(max(known), kind) if known else None,
            }
        )
    return row


def manifest_list(rows: list[dict[str, Any]], snapshot_id: int, parent_id: int | None, sequence: int) -> Written:
    """The list of a snapshot's manifests."""
    about = {
        "snapshot-id": str(snapshot_id), "sequence-number": str(sequence), "format-version": "2",
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
    }  # fmt: skip
    return Written(f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro", _avro(_LIST, rows, about))


def _own_form(value: Any) -> Any:
    # Avro gives a date for what was written as a number of days, and a moment for one of microseconds.
    if isinstance(value, dt.datetime):
        return types.microseconds(value)
    return value if isinstance(value, str | int | None) else types.days(value)


def _avro(schema: Any, records: list[dict[str, Any]], about: dict[str, str]) -> bytes:
    content = io.BytesIO()
    fastavro.writer(content, schema, records, codec="deflate", metadata=about)
    return content.getvalue()


def _field(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _bounds(name: str, number: int) -> dict[str, Any]:
    fields = [_field("key", number + 1, "int"), _field("value", number + 2, "bytes")]
    record = {"type": "record", "name": f"k{number + 1}_v{number + 2}", "fields": fields}
    kind = {"type": "array", "items": record, "logicalType": "map"}
    return _optional(name, number, kind)


@lru_cache(maxsize=64)
def _entry_schema(kinds: tuple[tuple[str, str], ...]) -> Any:
    """The Avro schema of a manifest's records, which depends on the partition columns (Iceberg's specification).

    Parsed once: a publish of a thousand partitions writes tens of manifests.
    """
    values = [_optional(name, 1000 + place, _AVRO[kind]) for place, (name, kind) in enumerate(kinds)]
    file = [
        _field("content", 134, "int"),
        _field("file_path", 100, "string"),
        _field("file_format", 101, "string"),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": values}),
        _field("record_count", 103, "long"),
        _field("file_size_in_bytes", 104, "long"),
        _bounds("lower_bounds", 125),
        _bounds("upper_bounds", 128),
    ]
    fields = [
        _field("status", 0, "int"),
        _optional("snapshot_id", 1, "long"),
        _optional("sequence_number", 3, "long"),
        _optional("file_sequence_number", 4, "long"),
        _field("data_file", 2, {"type": "record", "name": "r2", "fields": file}),
    ]
    return fastavro.parse_schema({"type": "record", "name": "manifest_entry", "fields": fields})


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field("contains_null", 509, "boolean"),
        _optional("contains_nan", 518, "boolean"),
        _optional("lower_bound", 510, "bytes"),
        _optional("upper_bound", 511, "bytes"),
    ],
}
_LABELS = ("added", "existing", "deleted")
_LIST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        *(_field(f"{label}_files_count", number, "int") for number, label in enumerate(_LABELS, 504)),
        *(_field(f"{label}_rows_count", number, "long") for number, label in enumerate(_LABELS, 512)),
        _optional("partitions", 507, {"type": "array", "items": _SUMMARY, "element-id": 508}),
    ],
}
