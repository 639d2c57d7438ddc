"""Events of OpenLineage as others read them: validated by the published schemas, and made into a graph again."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPEC = Path(__file__).parent / "spec"
Event = dict[str, Any]


@cache
def _schemas() -> dict[str, Any]:
    own = resources.files("varve.observe.lineage").joinpath("VarvePartitionRunFacet.json")
    texts = [own.read_text(encoding="utf-8"), *(file.read_text(encoding="utf-8") for file in SPEC.rglob("*.json"))]
    return {schema["$id"]: schema for schema in map(json.loads, texts)}


@cache
def _registry() -> Registry[Any]:
    return Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in _schemas().items())


def _validator(reference: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": reference}, registry=_registry(), format_checker=FormatChecker())


def problems(event: Event) -> list[str]:
    """What the published schemas say against an event: of the whole, and of each facet by the schema that it names."""
    whole = _validator("https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
    found = [f"{error.json_path}: {error.message}" for error in whole.iter_errors(event)]
    for place, facet in _facets(event):
        schema = facet["_schemaURL"]
        # The client may name a newer patch version of a schema than the one that is published: they mean the same.
        if (known := _known(schema)) is None:
            found.append(f"{place}: there is no schema {schema}")
        else:
            found += [
                f"{place}{error.json_path[1:]}: {error.message}" for error in _validator(known).iter_errors(facet)
            ]
    return found


def _known(schema: str) -> str | None:
    name, _, fragment = schema.partition("#")
    if name in _schemas():
        return schema
    file = name.rpartition("/")[2]
    newest = next((known for known in _schemas() if known.rpartition("/")[2] == file), None)
    return None if newest is None else f"{newest}#{fragment}"


def _facets(event: Event) -> Iterator[tuple[str, Any]]:
    holders = [("run", event["run"]), ("job", event["job"])]
    holders += [("input", dataset) for dataset in event.get("inputs", [])]
    holders += [("output", dataset) for dataset in event.get("outputs", [])]
    for place, holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            for name, facet in holder.get(kind, {}).items():
                yield f"{place}.{kind}.{name}", facet


def columns_of(events: Sequence[Event]) -> set[str]:
    """The lines of `varve graph --columns`, from the column lineage of what runs have completed."""
    return {
        f"{output['name']}.{column} <- "
        + (", ".join(f"{source['name']}.{source['field']}" for source in made["inputFields"]) or "no column")
        for event in events
        if event["eventType"] == "COMPLETE"
        for output in event["outputs"]
        for column, made in output["facets"].get("columnLineage", {"fields": {}})["fields"].items()
    }


def reads_of(events: Sequence[Event]) -> dict[str, set[str]]:
    """By dataset which others its runs read, without the files and tables that no run of ours makes."""
    made = {output["name"] for event in events for output in event["outputs"]}
    reads: dict[str, set[str]] = {}
    for event in events:
        for output in event["outputs"]:
            reads.setdefault(output["name"], set()).update({read["name"] for read in event["inputs"]} & made)
    return reads
