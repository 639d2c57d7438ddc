"""Files in landing folders that no sensor has looked at yet: `varve plan` and `why` name the sensor to switch on.

The folders are only listed: no file is opened, and the catalog is not changed.

Not here: taking the files (varve/dagster/automation/arriving.py), and files that were rejected (rejected.py).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from varve.catalog.parts import Parts
from varve.catalog.rejected import RejectedArrivals
from varve.model.errors import counted
from varve.planning.arrivals.arrivals import Sorter, declaration_of
from varve.sources.landing import listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile
    from varve.services.settings import Settings

WHO_TAKES_IT = "the sensor arrivals takes it at its next look, if it is switched on"


def unseen_values(
    datasets: Iterable[Dataset], catalog: Catalog, settings: Settings, members: Members
) -> list[dict[str, Any]]:
    """Return, for each landing dataset, the partitions whose files the next tick would take, as plain values.

    A folder that cannot be listed is left out here: the sensor's tick reports it.
    """
    values = []
    for dataset in datasets:
        if arrivals := taken_next(dataset, catalog, settings, members):
            keys = sorted(arrivals)
            values.append(
                {
                    "dataset": dataset.name,
                    "partitions": len(keys),
                    "files": sum(map(len, arrivals.values())),
                    "first": str(keys[0]),
                    "last": str(keys[-1]),
                }
            )
    return values


def taken_next(
    dataset: Dataset, catalog: Catalog, settings: Settings, members: Members
) -> dict[PartitionKey, tuple[LandingFile, ...]]:
    """The landing files that the next tick would take, by partition; none where the folder cannot be listed."""
    if not dataset.arrives or dataset.external is not None:
        return {}
    try:
        sorter = Sorter(
            dataset,
            catalog.arrived_files(dataset.name),
            RejectedArrivals(catalog.connection).of(dataset.name),
            members,
            time.time(),
            settings.settle_seconds,
            declaration_of(dataset),
            Parts(catalog.connection).open_again(dataset.name) if dataset.incremental is not None else (),
        )
    except psycopg.errors.UndefinedTable:
        return {}
    # Libraries of object stores raise errors of their own. The rest of the plan is shown all the same.
    with suppress(Exception):
        return dict(sorter.sort(listing.listed(dataset, listing.folder_of(settings.landing, dataset))).take)
    return {}


def show_unseen(console: Console, unseen: Sequence[Mapping[str, Any]]) -> None:
    """Print the files that no sensor has looked at yet."""
    for entry in unseen:
        last = f" ... {entry['last']}" if entry["partitions"] > 1 else ""
        text = (
            f"arrived: {entry['dataset']} {entry['first']}{last}: {counted(entry['files'], 'file')} that the sensor "
            "arrivals takes at its next look, if it is switched on"
        )
        console.print(text, markup=False, highlight=False, soft_wrap=True)
