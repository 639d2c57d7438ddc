"""The metadata document of an Iceberg table (format 2): made first, and given the columns that are declared now.

Not here: its snapshots (snapshots.py).
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.schema import ColumnType
from varve.stores.lake.iceberg.types import fields_of, follows, name_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset

_COLUMNS = "varve.columns"
_GENERATION = "varve.generation"
_MAPPING = "schema.name-mapping.default"
Document = dict[str, Any]


class NotFollowed(VarveError):
    """Iceberg's readers would read batches of an earlier declaration wrong by this one."""


def address(location: str) -> str:
    """A folder or file of the lake as the address that engines take: a local path gets its scheme."""
    return location if "://" in location else f"file://{location}"


def first(dataset: Dataset, location: str) -> Document:
    """The document of a table without snapshots, over the dataset's folder."""
    fields = fields_of(dataset.read_columns())
    ids = {field["name"]: field["id"] for field in fields}
    names = dataset.partitioning.names
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": address(location),
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": _highest_id(fields),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "identifier-field-ids": [], "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [
            {
                "spec-id": 0,
                "fields": [
                    {"name": name, "transform": "identity", "source-id": ids[name], "field-id": 1000 + place}
                    for place, name in enumerate(names)
                ],
            }
        ],
        "last-partition-id": 999 + len(names),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            # No engine's expiry, removal of orphans or DROP ... PURGE may delete Varve's files.
            "gc.enabled": "false",
            _MAPPING: json.dumps(name_mapping(fields)),
            # Engines then write no bounds of their own accord, should somebody let them write.
            "write.metadata.metrics.default": "none",
            "write.metadata.path": f"{address(location)}/_iceberg",
            _COLUMNS: json.dumps(_types(dataset)),
            **({"comment": dataset.comment} if dataset.comment else {}),
        },
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def schema_of(document: Document) -> dict[str, Any]:
    """The schema that is declared now."""
    schemas: list[dict[str, Any]] = document["schemas"]
    return next(schema for schema in schemas if schema["schema-id"] == document["current-schema-id"])


def declared_types(document: Document) -> dict[str, str]:
    """The columns that are declared now, with the types that the dataset declares."""
    types: dict[str, str] = json.loads(document["properties"][_COLUMNS])
    return {field["name"]: types[field["name"]] for field in schema_of(document)["fields"]}


def partition_types(document: Document) -> dict[str, str]:
    """The partition columns with their Iceberg types, in the order of the specification."""
    types = {field["id"]: field["type"] for field in schema_of(document)["fields"]}
    return {field["name"]: types[field["source-id"]] for field in document["partition-specs"][0]["fields"]}


def generation_of(document: Document) -> str:
    """The generation of which an environment's table has files; "" where it is the one that readers see."""
    generation: str = document["properties"].get(_GENERATION, "")
    return generation


def of_generation(document: Document, generation: str) -> Document:
    """The document with the generation of its files."""
    if generation_of(document) == generation:
        return document
    return document | {"properties": document["properties"] | {_GENERATION: generation}}


def is_followed(document: Document, dataset: Dataset) -> bool:
    """Whether readers read the files of a document right by what the dataset declares now; `evolved` succeeds then."""
    return not unfollowed(json.loads(document["properties"][_COLUMNS]), _types(dataset))


def evolved(document: Document, dataset: Dataset) -> Document:
    """The document with the columns that the dataset declares now; the same one where it has them.

    Raises NotFollowed where files of the earlier type would be read wrong.
    """
    known: dict[str, str] = json.loads(document["properties"][_COLUMNS])
    declared = _types(dataset)
    docs = {field["name"]: field.get("doc", "") for field in schema_of(document)["fields"]}
    same_names = docs.keys() == declared.keys()
    if same_names and all(known[name] == declared[name] for name in declared) and docs == _comments(dataset):
        return document
    if problems := unfollowed(known, declared):
        raise NotFollowed(" ".join(problems))
    changed = _by_library(document, dataset)
    changed["properties"][_COLUMNS] = json.dumps(known | declared)
    return changed


def unfollowed(known: Mapping[str, str], declared: Mapping[str, str]) -> list[str]:
    """One sentence for each column whose earlier files Iceberg's readers would read wrong by the type of now."""
    return [
        f"{name} was {known[name]} and is {kind} now, which readers of Iceberg do not follow."
        for name, kind in declared.items()
        if name in known and not follows(ColumnType(known[name]), ColumnType(kind))
    ]


def _by_library(document: Document, dataset: Dataset) -> Document:
    """Change the schema by pyiceberg, of which only the metadata is taken; the name mapping follows."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataUtil

    wanted = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": fields_of(dataset.read_columns())})
    before = {field["name"]: field for field in schema_of(document)["fields"]}
    # Nothing but the schema is of interest here, and snapshots take time to parse.
    without = document | {"snapshots": [], "refs": {}, "snapshot-log": [], "metadata-log": []}
    without.pop("current-snapshot-id", None)
    table = Table(("t",), TableMetadataUtil.parse_obj(without), "", PyArrowFileIO(), NoopCatalog("none"))
    transaction = table.transaction()
    # As paths, since a name alone is taken for one where it has a dot.
    with transaction.update_schema() as update:
        for name in before.keys() - {field.name for field in wanted.fields}:
            update.delete_column((name,))
        for field in wanted.fields:
            if field.name not in before:
                update.add_column((field.name,), field.field_type, doc=field.doc)
            elif field.field_type.is_primitive and str(field.field_type) != before[field.name]["type"]:
                update.update_column((field.name,), field.field_type, doc=field.doc)
            elif (field.doc or "") != before[field.name].get("doc", ""):
                update.update_column((field.name,), doc=field.doc or "")
        names = [field.name for field in wanted.fields]
        if names != [name for name in before if name in names] + [name for name in names if name not in before]:
            for place, name in enumerate(names):
                update.move_first((name,)) if place == 0 else update.move_after((name,), (names[place - 1],))
    made: Document = json.loads(transaction.table_metadata.model_dump_json())
    kept = {key: document[key] for key in ("snapshots", "refs", "snapshot-log", "metadata-log", "last-updated-ms")}
    if "current-snapshot-id" in document:
        kept["current-snapshot-id"] = document["current-snapshot-id"]
    return _with_earlier_ids(made, document) | kept


def _with_earlier_ids(made: Document, document: Document) -> Document:
    """The changed document, in which columns that have come back have the ids that they had in the one before.

    Files have no ids, and the mapping gives a name to one id only: with a new one, all earlier snapshots, which are
    read by the schema of their time, would have NULL in the column. The types follow, or the change was refused.
    """
    before = {field["name"] for field in schema_of(document)["fields"]}
    in_order = sorted(document["schemas"], key=lambda schema: int(schema["schema-id"]))
    earlier = {field["name"]: field for schema in in_order for field in schema["fields"] if field["name"] not in before}
    changed = schema_of(made)
    back = {field["id"]: earlier[field["name"]] for field in changed["fields"] if field["name"] in earlier}
    if not back:
        return made
    fields = [
        field | {"id": old["id"], "type": old["type"] if isinstance(old["type"], dict) else field["type"]}
        if (old := back.get(field["id"]))
        else field
        for field in changed["fields"]
    ]
    ids = {field["id"] for field in back.values()}
    mapping = [
        *(entry for entry in _mapping(made) if entry["field-id"] not in back.keys() | ids),
        *(entry for entry in _mapping(document) if entry["field-id"] in ids),
    ]
    return made | {
        "schemas": [schema if schema is not changed else changed | {"fields": fields} for schema in made["schemas"]],
        "properties": made["properties"] | {_MAPPING: json.dumps(mapping)},
    }


def _mapping(document: Document) -> list[dict[str, Any]]:
    mapping: list[dict[str, Any]] = json.loads(document["properties"][_MAPPING])
    return mapping


def _types(dataset: Dataset) -> dict[str, str]:
    return {column.name: str(column.type) for column in dataset.read_columns()}


def _comments(dataset: Dataset) -> dict[str, str]:
    return {column.name: column.comment or "" for column in dataset.read_columns()}


def _highest_id(fields: Sequence[Mapping[str, Any]]) -> int:
    def ids(kind: Any) -> list[int]:
        if not isinstance(kind, dict):
            return []
        if kind["type"] == "struct":
            return [number for field in kind["fields"] for number in (field["id"], *ids(field["type"]))]
        names = ("element",) if kind["type"] == "list" else ("key", "value")
        return [number for name in names for number in (kind[f"{name}-id"], *ids(kind[name]))]

    return max(int(number) for field in fields for number in (field["id"], *ids(field["type"])))
