"""Compares the Iceberg side of a dataset with the catalog.

Not here: writing it again (tables.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.inventory import Finding
from varve.stores.lake.iceberg import folder as folders
from varve.stores.lake.iceberg.folder import MetadataLost
from varve.stores.lake.iceberg.pointers import TURNED_OFF
from varve.stores.lake.iceberg.prepare import differing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.dataset import Dataset
    from varve.stores.lake.iceberg.tables import IcebergTables

_REPAIR = "`varve repair` writes it again from the catalog."


def findings(tables: IcebergTables, dataset: Dataset) -> Iterator[Finding]:
    """Every difference between what the dataset's Iceberg table shows and what is current."""

    def of_table(problem: str, remedy: str = _REPAIR) -> Finding:
        return Finding(dataset.name, "", None, problem, remedy)

    pointer = tables.pointers.of(dataset.name)
    if not tables.has(dataset):
        if pointer is not None and pointer.location is not None:
            yield of_table("it is shown as an Iceberg table, which it is not any more", "`varve repair` hides it.")
        return
    current = tables.catalog.current(dataset.name)
    if pointer is None or pointer.hidden_because == TURNED_OFF:
        if current:
            yield of_table("it has no Iceberg table yet", "`varve repair` makes it, and touches no data file.")
        return
    if pointer.hidden_because:
        yield of_table(
            f"its Iceberg table is hidden: {pointer.hidden_because.rstrip('.')}",
            "Compute the partitions again that have the earlier type, then `varve repair` shows it; or write ICEBERG "
            "OFF, or give the dataset a new name.",
        )
        return
    if pointer.location != pointer.written:
        yield of_table(
            f"somebody else has moved its Iceberg table to {pointer.location}", "`varve repair` takes it back."
        )
        return
    assert pointer.location is not None, "it is the location that Varve has written"
    table_folder = tables.folder(dataset.name)
    found = folders.listed(tables.layout, [batch.location for batch in current.values()])
    try:
        different = differing(table_folder, table_folder.document(pointer.location), current, found)
    except MetadataLost as error:
        yield of_table(f"the metadata of its Iceberg table is lost: {error}")
        return
    for path in different:
        batch_id = current[path].batch_id if path in current else None
        what = f"batch {batch_id} is current" if batch_id else "nothing is current"
        yield Finding(dataset.name, path, batch_id, f"the Iceberg table shows other files, and {what}", _REPAIR)
