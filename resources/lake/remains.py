"""Everything the lake can tell without a catalog: each whole batch, and its own record of what was put in force.

Not here: making a catalog of it (resources/recovery.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pipeline_defs.model.batch import BatchId
from pipeline_defs.model.errors import VarveError
from resources.files import open_files
from resources.lake import clean, manifest, record
from resources.lake.footers import data_files, footer_rows
from resources.store import Finding, Remains

if TYPE_CHECKING:
    from resources.lake.layout import Layout
    from resources.store import Described, Leftover

_THREADS = 8
_LEFT_OUT = "Left out; put it back from a copy and repair again, or run the partition."


def remains(layout: Layout) -> list[Remains]:
    """One for each dataset of which anything lies under the root."""
    files, _ = open_files(layout.root)
    units = [unit for unit in clean.units(layout) if clean.batch_of(unit.location) is not None]
    with ThreadPoolExecutor(_THREADS) as pool:
        looked = list(pool.map(lambda unit: _look(files, layout, unit), units))
    datasets = sorted({unit.dataset for unit in units})
    return [
        Remains(
            name,
            [one for one in looked if not isinstance(one, Finding) and one.dataset == name],
            record.read(layout, name),
            [one for one in looked if isinstance(one, Finding) and one.dataset == name],
        )
        for name in datasets
    ]


def _look(files: Any, layout: Layout, unit: Leftover) -> Described | Finding:
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
