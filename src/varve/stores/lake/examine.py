"""Compares the catalog with the lake: batches with their folders, and current batches with the Hive table.

Not here: repairing the Hive table (projection.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.inventory import RESTORE_FOLDER, DescribedBatch, Finding
from varve.services.files import open_files
from varve.stores.folders import manifest
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.footers import data_files, refuse_broken_pages, rows_and_seal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout

_PROJECT = "`varve repair` points the table at it."


def folders(layout: Layout, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
    """Every batch whose folder is missing, or whose files, footers, rows or description differ from the catalog.

    `deep` also reads the files, and compares each page with its checksum.
    """
    files, _ = open_files(layout.root)
    by_batch = at_once(lambda batch: list(_folder(files, dataset, batch, deep=deep)), batches)
    return [finding for findings in by_batch for finding in findings]


def table(dataset: Dataset, current: Mapping[str, Batch], shown: Mapping[str, str]) -> list[Finding]:
    """Every partition whose current batch the Hive table does not show, and every one that it should not show.

    `shown` has the location of each partition of the table.
    """
    findings = []
    for path, batch in current.items():
        location = shown.get(path)
        if location is None:
            problem = f"the Hive table does not show batch {batch.batch_id}"
        elif not location.endswith(f"/{batch.batch_id.folder}"):
            problem = f"the Hive table shows {location.rsplit('/', 1)[-1]}, and batch {batch.batch_id} is current"
        else:
            continue
        findings.append(Finding(dataset.name, path, batch.batch_id, problem, _PROJECT))
    findings += [
        Finding(dataset.name, path, None, f"the Hive table shows {location}, and nothing is current", _PROJECT)
        for path, location in shown.items()
        if path not in current
    ]
    return findings


def misshown(dataset: Dataset, current: Mapping[str, Batch], shown: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The partitions that the Hive table shows at another batch or not at all, and those that it should not show."""
    findings = table(dataset, current, shown)
    return {finding.partition for finding in findings if finding.batch_id}, {
        finding.partition for finding in findings if not finding.batch_id
    }


def describe_again(layout: Layout, batches: Sequence[DescribedBatch]) -> int:
    """Write the missing and wrong descriptions of batches whose files are as published. Returns how many."""
    files, _ = open_files(layout.root)

    def repair(batch: DescribedBatch) -> bool:
        data = data_files(files, batch.location)
        if not data or sum(entry["size"] for entry in data) != batch.size:
            return False
        try:
            if _identity_and_size(manifest.read(files, batch.location)) == _identity_and_size(batch):
                return False
        except (FileNotFoundError, VarveError):
            pass
        manifest.write(files, batch)
        return True

    return sum(at_once(repair, batches))


def _identity_and_size(batch: DescribedBatch | Batch) -> tuple[object, ...]:
    """What a batch and its description must have in common."""
    return batch.partition, batch.batch_id, batch.rows, batch.size


def _folder(files: Any, dataset: Dataset, batch: Batch, *, deep: bool) -> Iterator[Finding]:
    def finding(text: str, remedy: str = RESTORE_FOLDER) -> Finding:
        return Finding(dataset.name, batch.partition, batch.batch_id, text, remedy)

    if not files.exists(batch.location):
        yield finding(f"the folder {batch.location} is gone")
        return
    data = data_files(files, batch.location)
    size = sum(entry["size"] for entry in data)
    try:
        rows, seal = rows_and_seal(files, data)
    except (OSError, ValueError) as error:
        yield finding(str(error).splitlines()[0])
        return
    for entry in data if deep else ():
        try:
            refuse_broken_pages(files, entry["name"])
        except (OSError, ValueError) as error:
            yield finding(f"{entry['name']} is damaged: {str(error).splitlines()[0]}")
    if (rows, size) != (batch.rows, batch.size):
        yield finding(
            f"the folder holds {rows} rows in {size} bytes, and {batch.rows} rows in {batch.size} bytes were published"
        )
    try:
        description = manifest.read(files, batch.location)
    except FileNotFoundError:
        yield finding("the folder has no description", "`varve repair` writes it again.")
    except VarveError as error:
        yield finding(str(error), "`varve repair` writes it again.")
    else:
        if description.seal is not None and description.seal != seal and (rows, size) == (batch.rows, batch.size):
            yield finding("a footer of its files is not the one that was published, although rows and size are")
        if description.dataset != dataset.name or _identity_and_size(description) != _identity_and_size(batch):
            yield finding(
                f"the folder's description is of {description.dataset} {description.partition} batch "
                f"{description.batch_id}, {description.rows} rows in {description.size} bytes",
                "`varve repair` writes it again where the files are as published.",
            )
