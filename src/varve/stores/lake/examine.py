"""Comparing what the catalog says of batches with their folders, and what is current with what the Hive table shows.

Not here: mending the table (projection.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError
from varve.model.inventory import DescribedBatch, Finding
from varve.services.files import open_files
from varve.stores.folders import manifest
from varve.stores.folders.footers import data_files, refuse_broken_pages, rows_and_seal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.stores.folders.layout import Layout

_THREADS = 8
_RERUN = "Put it back from a copy, go back to an earlier batch with `varve rollback`, or run the partition again."
_PROJECT = "`varve repair` points the table at it."


def folders(layout: Layout, dataset: Dataset, batches: Sequence[Batch], *, deep: bool = False) -> list[Finding]:
    """Every batch whose folder is gone, or holds other files, footers, rows or another description than it should.

    `deep` reads the files too, each page with its checksum.
    """
    files, _ = open_files(layout.root)
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda batch: list(_folder(files, dataset, batch, deep=deep)), batches)
    return [finding for findings in found for finding in findings]


def table(dataset: Dataset, current: Mapping[str, Batch], shown: Mapping[str, str]) -> list[Finding]:
    """Every partition that the Hive table does not show at its current batch, and every one it should not show.

    `shown` is where each of its partitions lies.
    """
    findings = []
    for path, batch in current.items():
        place = shown.get(path)
        if place is None:
            text = f"the Hive table does not show batch {batch.batch_id}"
        elif not place.endswith(f"/{batch.batch_id.folder}"):
            text = f"the Hive table shows {place.rsplit('/', 1)[-1]}, and batch {batch.batch_id} is current"
        else:
            continue
        findings.append(Finding(dataset.name, path, batch.batch_id, text, _PROJECT))
    findings += [
        Finding(dataset.name, path, None, f"the Hive table shows {place}, and nothing is current", _PROJECT)
        for path, place in shown.items()
        if path not in current
    ]
    return findings


def misshown(dataset: Dataset, current: Mapping[str, Batch], shown: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The partitions that the Hive table shows elsewhere or not at all, and those it should not show."""
    found = table(dataset, current, shown)
    return {one.partition for one in found if one.batch_id}, {one.partition for one in found if not one.batch_id}


def describe_again(layout: Layout, batches: Sequence[DescribedBatch]) -> int:
    """Write the description of every batch that has none or a wrong one, and whose files are as published; how many."""
    files, _ = open_files(layout.root)

    def mend(batch: DescribedBatch) -> bool:
        data = data_files(files, batch.location)
        if not data or sum(entry["size"] for entry in data) != batch.size:
            return False
        try:
            if _essence(manifest.read(files, batch.location)) == _essence(batch):
                return False
        except (FileNotFoundError, VarveError):
            pass
        manifest.write(files, batch)
        return True

    with ThreadPoolExecutor(_THREADS) as pool:
        return sum(pool.map(mend, batches))


def _essence(batch: DescribedBatch | Batch) -> tuple[object, ...]:
    return batch.partition, batch.batch_id, batch.rows, batch.size


def _folder(files: Any, dataset: Dataset, batch: Batch, *, deep: bool) -> Iterator[Finding]:
    def finding(text: str, remedy: str = _RERUN) -> Finding:
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
        said = manifest.read(files, batch.location)
    except FileNotFoundError:
        yield finding("the folder has no description", "`varve repair` writes it again.")
    except VarveError as error:
        yield finding(str(error), "`varve repair` writes it again.")
    else:
        if said.seal is not None and said.seal != seal and (rows, size) == (batch.rows, batch.size):
            yield finding("a footer of its files is not the one that was published, although rows and size are")
        if said.dataset != dataset.name or _essence(said) != _essence(batch):
            yield finding(
                f"the folder's description is of {said.dataset} {said.partition} batch {said.batch_id}, "
                f"{said.rows} rows in {said.size} bytes",
                "`varve repair` writes it again where the files are as published.",
            )
