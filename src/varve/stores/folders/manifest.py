"""The description that each batch folder carries of itself, from which a lost catalog can be rebuilt.

Not here: which of them was in force (lake/record.py), rebuilding (varve/catalog/recovery/recovery.py) and comparing
(lake/examine.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.catalog.rows import declaration
from varve.model.batch import BatchId, Bounds, Input, Part, TakenFile
from varve.model.errors import VarveError
from varve.model.inventory import DescribedBatch
from varve.stores.folders.layout import MANIFEST

if TYPE_CHECKING:
    from varve.model.batch import StagedBatch
    from varve.model.build import Build

FORMAT = 1


def of(build: Build, batch: StagedBatch) -> DescribedBatch:
    """What a staged batch will say of itself."""
    inputs = build.inputs.get(batch.partition, set())
    return DescribedBatch(
        dataset=build.dataset.name,
        partition=batch.partition.path,
        batch_id=build.batch_id,
        location=batch.location,
        run_id=build.run_id,
        code_version=build.code_version,
        rows=batch.rows,
        size=batch.size,
        files=batch.files,
        content=batch.content,
        bounds=batch.bounds,
        inputs=tuple(sorted(inputs)),
        declaration=declaration(build.dataset),
        seal=batch.seal,
        parts=batch.parts,
    )


def write(files: Any, batch: DescribedBatch) -> None:
    """Put the description into the batch's folder."""
    text = json.dumps(
        {
            "format": FORMAT,
            "dataset": batch.dataset,
            "partition": batch.partition,
            "batch_id": batch.batch_id.millis,
            "run_id": batch.run_id,
            "code_version": batch.code_version,
            "rows": batch.rows,
            "bytes": batch.size,
            "files": batch.files,
            "content": batch.content,
            "statistics": {found.column: [found.low, found.high] for found in batch.bounds},
            "inputs": [[found.source, found.partition, found.version] for found in batch.inputs],
            "declaration": batch.declaration,
            "seal": batch.seal,
            **({"parts": [_part_said(part) for part in batch.parts]} if batch.parts else {}),
        },
        indent=1,
    )
    with files.open(f"{batch.location}/{MANIFEST}", "w", encoding="utf-8") as file:
        file.write(text)


def read(files: Any, folder: str) -> DescribedBatch:
    """The description in a batch's folder. Raises FileNotFoundError, and VarveError where it cannot be understood."""
    place = f"{folder}/{MANIFEST}"
    with files.open(place, "r", encoding="utf-8") as file:
        text = file.read()
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise VarveError(f"{place} has format {found['format']}, and this Varve reads {FORMAT}.")
        return DescribedBatch(
            dataset=found["dataset"],
            partition=found["partition"],
            batch_id=BatchId(int(found["batch_id"])),
            location=folder,
            run_id=found["run_id"],
            code_version=found.get("code_version", ""),
            rows=int(found["rows"]),
            size=int(found["bytes"]),
            files=int(found["files"]),
            content=found.get("content"),
            bounds=tuple(Bounds(column, low, high) for column, (low, high) in found.get("statistics", {}).items()),
            inputs=tuple(Input(*entry) for entry in found["inputs"]),
            declaration=found["declaration"],
            seal=found.get("seal"),
            parts=tuple(_part(part) for part in found.get("parts", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VarveError(f"{place} is not a batch's description: {type(error).__name__} {error}.") from error


def _part_said(part: Part) -> dict[str, Any]:
    return {
        "batch_id": part.batch_id.millis,
        "location": part.location,
        "rows": part.rows,
        "bytes": part.size,
        "files": [[file.name, file.token, file.fingerprint, file.size] for file in part.files],
    }


def _part(said: dict[str, Any]) -> Part:
    files = tuple(TakenFile(*file) for file in said["files"])
    return Part(BatchId(int(said["batch_id"])), said["location"], int(said["rows"]), int(said["bytes"]), files)
