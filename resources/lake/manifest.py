"""The description that each batch folder carries of itself, from which a lost catalog can be rebuilt.

Not here: rebuilding (recover.py) and comparing (examine.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_defs.model.batch import BatchId, Bounds, Input
from pipeline_defs.model.errors import VarveError
from resources.catalog import declaration
from resources.lake.layout import MANIFEST

if TYPE_CHECKING:
    from pipeline_defs.model.batch import StagedBatch
    from resources.store import Build

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch says of itself."""

    dataset: str
    partition: str
    batch_id: BatchId
    run_id: str
    code_version: str
    rows: int
    size: int
    files: int
    content: str | None
    bounds: tuple[Bounds, ...]
    inputs: tuple[Input, ...]
    declaration: dict[str, Any]


def write(files: Any, build: Build, batch: StagedBatch) -> None:
    """Put the description into the batch's folder."""
    inputs = build.inputs.get(batch.partition, set())
    text = json.dumps(
        {
            "format": FORMAT,
            "dataset": build.dataset.name,
            "partition": batch.partition.path,
            "batch_id": build.batch_id.millis,
            "run_id": build.run_id,
            "code_version": build.code_version,
            "rows": batch.rows,
            "bytes": batch.size,
            "files": batch.files,
            "content": batch.content,
            "statistics": {found.column: [found.low, found.high] for found in batch.bounds},
            "inputs": sorted([found.source, found.partition, found.version] for found in inputs),
            "declaration": declaration(build.dataset),
        },
        indent=1,
    )
    with files.open(f"{batch.location}/{MANIFEST}", "w", encoding="utf-8") as file:
        file.write(text)


def read(files: Any, folder: str) -> Manifest:
    """The description in a batch's folder. Raises FileNotFoundError, and VarveError where it cannot be understood."""
    place = f"{folder}/{MANIFEST}"
    with files.open(place, "r", encoding="utf-8") as file:
        text = file.read()
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise VarveError(f"{place} has format {found['format']}, and this Varve reads {FORMAT}.")
        return Manifest(
            dataset=found["dataset"],
            partition=found["partition"],
            batch_id=BatchId(int(found["batch_id"])),
            run_id=found["run_id"],
            code_version=found.get("code_version", ""),
            rows=int(found["rows"]),
            size=int(found["bytes"]),
            files=int(found["files"]),
            content=found.get("content"),
            bounds=tuple(Bounds(column, low, high) for column, (low, high) in found.get("statistics", {}).items()),
            inputs=tuple(Input(*entry) for entry in found["inputs"]),
            declaration=found["declaration"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VarveError(f"{place} is not a batch's description: {type(error).__name__} {error}.") from error
