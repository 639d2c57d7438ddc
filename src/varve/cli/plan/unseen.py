"""What lies in landing folders and was not looked at yet, as `varve plan` shows it: somebody has to switch a sensor on.

The folders are only listed; nothing is noted, and no file is opened.

Not here: taking them (varve/dagster/automation/arriving.py), and what was looked at and is not taken (rejected.py).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from varve.catalog.parts import Parts
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.automation.arriving import declaration_of
from varve.model.errors import counted
from varve.planning.arrivals.arrivals import Sorter
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from varve.catalog.catalog import Catalog
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile
    from varve.services.settings import Settings


def unseen_values(
    datasets: Iterable[Dataset], catalog: Catalog, settings: Settings, members: Members
) -> list[dict[str, Any]]:
    """For each landing dataset the partitions whose files the next look would take, as plain values.

    A folder that cannot be listed is left out here: the look at it says so.
    """
    values = []
    for dataset in datasets:
        if not dataset.arrives or dataset.outside is not None:
            continue
        try:
            before = RejectedArrivals(catalog.connection).of(dataset.name)
            arrived = catalog.arrived_files(dataset.name)
            opened = Parts(catalog.connection).open_again(dataset.name) if dataset.incremental is not None else ()
            sorter = Sorter(
                dataset, arrived, before, members, time.time(), settings.settle_seconds, declaration_of(dataset), opened
            )
        except psycopg.errors.UndefinedTable:
            continue
        take: list[tuple[PartitionKey, tuple[LandingFile, ...]]] = []
        # An object store's library raises errors of its own; the rest of the plan is shown all the same.
        with suppress(Exception):
            take = sorter.sort(Landing(settings.landing).files(dataset)).take
        if take:
            keys = sorted(key for key, _ in take)
            values.append(
                {
                    "dataset": dataset.name,
                    "partitions": len(keys),
                    "files": sum(len(files) for _, files in take),
                    "first": str(keys[0]),
                    "last": str(keys[-1]),
                }
            )
    return values


def show_unseen(console: Console, unseen: Sequence[Mapping[str, Any]]) -> None:
    """The same for people."""
    for one in unseen:
        last = f" ... {one['last']}" if one["partitions"] > 1 else ""
        text = (
            f"arrived: {one['dataset']} {one['first']}{last}: {counted(one['files'], 'file')} that the sensor arrivals "
            "takes at its next look, if it is switched on"
        )
        console.print(text, markup=False, highlight=False, soft_wrap=True)
