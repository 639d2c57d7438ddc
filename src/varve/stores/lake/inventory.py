"""Everything the lake can tell without a catalog: each whole batch, and its own record of what was put in force.

Not here: making a catalog of it (varve/catalog/recovery/recovery.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from varve.model.batch import BatchId
from varve.model.errors import VarveError
from varve.model.inventory import Finding, StoreInventory
from varve.services.files import open_files
from varve.stores.folders import clean, manifest
from varve.stores.folders.footers import data_files, footer_rows
from varve.stores.lake import record

if TYPE_CHECKING:
    from varve.model.inventory import DescribedBatch, Leftover
    from varve.stores.folders.layout import Layout

_THREADS = 8
_LEFT_OUT = "Left out; put it back from a copy and repair again, or run the partition."


def remains(layout: Layout) -> list[StoreInventory]:
    """One for each dataset of which anything lies under the root."""
    files, _ = open_files(layout.root)
    units = [unit for unit in clean.units(layout) if clean.batch_of(unit.location) is not None]
    with ThreadPoolExecutor(_THREADS) as pool:
        looked = list(pool.map(lambda unit: _look(files, layout, unit), units))
    datasets = sorted({unit.dataset for unit in units})
    return [
        StoreInventory(
            name,
            [one for one in looked if not isinstance(one, Finding) and one.dataset == name],
            record.read(layout, name),
            [one for one in looked if isinstance(one, Finding) and one.dataset == name],
        )
        for name in datasets
    ]


def _look(files: Any, layout: Layout, unit: Leftover) -> DescribedBatch | Finding:
    """The batch in a folder, where it is what it says."""
    batch_id = clean.batch_of(unit.location)
    assert batch_id is not None
    path = unit.location.removeprefix(f"{layout.table_of(unit.dataset)}/").rpartition("/")[0]

    def left_out(text: str) -> Finding:
        return Finding(unit.dataset, path, BatchId(batch_id), text, _LEFT_OUT)

    try:
        said = manifest.read(files, unit.location)
        data = data_files(files, unit.location)
        rows, size = sum(footer_rows(files, entry["name"]) for entry in data), sum(entry["size"] for entry in data)
    except FileNotFoundError:
        return left_out("the folder has no description: its run died before it was whole")
    except VarveError as error:
        return left_out(str(error))
    except (OSError, ValueError) as error:
        return left_out(f"the folder holds a broken parquet file: {str(error).splitlines()[0]}")
    if (said.dataset, said.partition, said.batch_id.millis) != (unit.dataset, path, batch_id):
        return left_out(
            f"the folder describes {said.dataset} {said.partition} batch {said.batch_id}: it was moved here"
        )
    if (rows, size) != (said.rows, said.size):
        return left_out(f"the folder holds {rows} rows in {size} bytes, and says {said.rows} in {said.size}")
    return said
