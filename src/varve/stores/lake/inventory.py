"""What the lake holds, without a catalog: each complete batch, and the lake's own record of publishes.

Not here: rebuilding a catalog from it (catalog/recovery/recovery.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.model.batch import BatchId
from varve.model.errors import VarveError
from varve.model.inventory import Finding, StoreInventory
from varve.services.files import open_files
from varve.stores.folders import clean, manifest
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.footers import data_files, footer_rows
from varve.stores.lake import record

if TYPE_CHECKING:
    from varve.model.inventory import DescribedBatch, Leftover
    from varve.stores.folders.layout import Layout

_LEFT_OUT = "Left out; put it back from a copy and repair again, or run the partition."


def take_inventory(layout: Layout) -> list[StoreInventory]:
    """The inventory of each dataset of which anything lies under the root."""
    files, _ = open_files(layout.root)
    units = [unit for unit in clean.units(layout) if clean.batch_of(unit.location) is not None]
    records = {name: record.read(layout, name) for name in sorted({unit.dataset for unit in units})}
    drops = {
        name: max((entry.build_id.millis for entry in entries if entry.kind == record.DROP), default=0)
        for name, entries in records.items()
    }
    # What is older than a drop is of a dataset that is no more: nobody may find it again under the same name.
    units = [unit for unit in units if (clean.batch_of(unit.location) or 0) > drops[unit.dataset]]
    batches = at_once(lambda unit: _look(files, layout, unit), units)
    datasets = sorted({unit.dataset for unit in units})
    return [
        StoreInventory(
            name,
            [batch for batch in batches if not isinstance(batch, Finding) and batch.dataset == name],
            [entry for entry in records[name] if entry.build_id.millis > drops[name]],
            [batch for batch in batches if isinstance(batch, Finding) and batch.dataset == name],
        )
        for name in datasets
    ]


def _look(files: Any, layout: Layout, unit: Leftover) -> DescribedBatch | Finding:
    """The batch in a folder, or a finding where it is not what its description says."""
    batch_id = clean.batch_of(unit.location)
    assert batch_id is not None
    path = unit.location.removeprefix(f"{layout.table_of(unit.dataset)}/").rpartition("/")[0]

    def left_out(text: str) -> Finding:
        return Finding(unit.dataset, path, BatchId(batch_id), text, _LEFT_OUT)

    try:
        description = manifest.read(files, unit.location)
        data = data_files(files, unit.location)
        rows, size = (
            sum(footer_rows(files, entry["name"], entry["size"]) for entry in data),
            sum(entry["size"] for entry in data),
        )
    except FileNotFoundError:
        return left_out("the folder has no description: its run died before it was whole")
    except VarveError as error:
        return left_out(str(error))
    except (OSError, ValueError) as error:
        return left_out(f"the folder holds a broken parquet file: {str(error).splitlines()[0]}")
    if (description.dataset, description.partition, description.batch_id.millis) != (unit.dataset, path, batch_id):
        return left_out(
            f"the folder describes {description.dataset} {description.partition} batch {description.batch_id}: it was "
            "moved here"
        )
    if (rows, size) != (description.rows, description.size):
        return left_out(
            f"the folder holds {rows} rows in {size} bytes, and says {description.rows} in {description.size}"
        )
    return description
