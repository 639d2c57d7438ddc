"""What Dagster shows of a batch beside its materialisation: counts that it plots, its place, and commands to copy.

Not here: when it is reported (io_manager.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import dagster as dg
import pendulum

from varve.model.partitions.key import PartitionKey
from varve.model.partitions.texts import command_words
from varve.stores.open import store_type

if TYPE_CHECKING:
    from varve.model.batch import Batch, BatchId, StagedBatch
    from varve.model.dataset import Dataset
    from varve.stores.open_build import OpenBuild


def published_metadata(opened: OpenBuild) -> dict[PartitionKey, dict[str, Any]]:
    """Return the metadata that Dagster shows of published partitions, under its standard keys where it has one."""
    rejected_rows = Counter[PartitionKey]()
    for batch in opened.rejected.staged if opened.rejected is not None else ():
        rejected_rows[batch.partition] += batch.rows
    return {batch.partition: _metadata_of(opened, batch, rejected_rows) for batch in opened.staged}


def _metadata_of(opened: OpenBuild, batch: StagedBatch, rejected_rows: Counter[PartitionKey]) -> dict[str, Any]:
    build = opened.build
    missing, growth = build.missing.get(batch.partition, set()), build.growth.get(batch.partition)
    since_begin = pendulum.now("UTC") - pendulum.instance(build.batch_id.started)
    return {
        **_common_metadata(build.dataset, batch),
        **batch_commands(build.dataset, batch.partition.path, build.batch_id),
        "varve/files": batch.files,
        "varve/inputs": len(build.inputs.get(batch.partition, ())),
        # Of the whole run: its partitions are computed by one job.
        "varve/seconds": round(since_begin.total_seconds(), 3),
        **({"varve/parts": len(batch.parts), "varve/reason": growth.reason} if growth is not None else {}),
        **({"varve/missing": dg.MetadataValue.json(sorted(missing))} if missing else {}),
        **_rejected_metadata(opened, rejected_rows[batch.partition]),
    }


def reused_metadata(dataset: Dataset, batch: Batch) -> dict[str, Any]:
    """Return Dagster's metadata of a batch that was reused without computing it."""
    return {
        **_common_metadata(dataset, batch),
        **batch_commands(dataset, batch.partition, batch.batch_id),
        "varve/inputs": len(batch.inputs),
    }


def batch_commands(dataset: Dataset, path: str, batch_id: BatchId) -> dict[str, Any]:
    """Return the id of a batch, and the commands that show it and that take its partition back to it."""
    words = command_words(path)
    show = f"varve show {dataset} {words} --batch {batch_id}"
    rollback = f"varve rollback {dataset} {words} --to {batch_id} --reason '...'"
    return {
        "varve/batch_id": dg.MetadataValue.text(str(batch_id)),
        "varve/show": dg.MetadataValue.text(show),
        **({} if dataset.rejected_of else {"varve/rollback": dg.MetadataValue.text(rollback)}),
    }


def _rejected_metadata(opened: OpenBuild, rows: int) -> dict[str, Any]:
    """Return how many rows of a landing partition were rejected; empty where the dataset rejects no rows."""
    rejection = opened.build.dataset.reject_into
    if rejection is None or opened.rejected is None:
        return {}
    return {
        "varve/rejected_rows": rows,
        "varve/rejected_at_most": rejection.at_most,
        "varve/rejected_into": rejection.dataset,
    }


def _common_metadata(dataset: Dataset, batch: StagedBatch | Batch) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": batch.rows,
        "dagster/table_name": dataset.name,
        "dagster/uri": store_type(dataset.store).address(dataset, batch.location),
        "varve/bytes": batch.size,
        **({"varve/content": dg.MetadataValue.text(batch.content)} if batch.content else {}),
    }
