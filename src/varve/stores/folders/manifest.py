"""The description of a batch in its own folder, from which a lost catalog can be rebuilt.

Not here: which batch was current (lake/record.py), rebuilding (catalog/recovery/recovery.py) and comparing
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
    """The description of a staged batch."""
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
    """Write the description into the batch's folder."""
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
            "statistics": {bounds.column: [bounds.low, bounds.high] for bounds in batch.bounds},
            "inputs": [[read.source, read.partition, read.version] for read in batch.inputs],
            "declaration": batch.declaration,
            "seal": batch.seal,
            **({"parts": [_part_fields(part) for part in batch.parts]} if batch.parts else {}),
        },
        indent=1,
    )
    with files.open(f"{batch.location}/{MANIFEST}", "w", encoding="utf-8") as file:
        file.write(text)


def read(files: Any, folder: str) -> DescribedBatch:
    """The description in a batch's folder. Raises FileNotFoundError, and VarveError where it cannot be understood."""
    file_path = f"{folder}/{MANIFEST}"
    with files.open(file_path, "rb") as file:
        content = file.read()
    try:
        fields = json.loads(content.decode("utf-8"))
        if fields["format"] != FORMAT:
            raise VarveError(f"{file_path} has format {fields['format']}, and this Varve reads {FORMAT}.")
        return DescribedBatch(
            dataset=fields["dataset"],
            partition=fields["partition"],
            batch_id=BatchId(int(fields["batch_id"])),
            location=folder,
            run_id=fields["run_id"],
            code_version=fields.get("code_version", ""),
            rows=int(fields["rows"]),
            size=int(fields["bytes"]),
            files=int(fields["files"]),
            content=fields.get("content"),
            bounds=tuple(Bounds(column, low, high) for column, (low, high) in fields.get("statistics", {}).items()),
            inputs=tuple(Input(*entry) for entry in fields["inputs"]),
            declaration=fields["declaration"],
            seal=fields.get("seal"),
            parts=tuple(_part(part) for part in fields.get("parts", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VarveError(f"{file_path} is not a batch's description: {type(error).__name__} {error}.") from error


def _part_fields(part: Part) -> dict[str, Any]:
    return {
        "batch_id": part.batch_id.millis,
        "location": part.location,
        "rows": part.rows,
        "bytes": part.size,
        "files": [[file.name, file.token, file.fingerprint, file.size] for file in part.files],
    }


def _part(fields: dict[str, Any]) -> Part:
    files = tuple(TakenFile(*file) for file in fields["files"])
    return Part(BatchId(int(fields["batch_id"])), fields["location"], int(fields["rows"]), int(fields["bytes"]), files)
