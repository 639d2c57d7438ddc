"""What arrives in an environment: files that a person lands there, and what lies in production's landing folders.

Not here: computing what follows from it (open_environment.py), and the files themselves (varve/sources/landing).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import dagster as dg

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.environments.dropped import unless_dropped
from varve.catalog.environments.environments import Environments
from varve.dagster.automation.arriving import ArrivalLook
from varve.dagster.driver import RUN_CONFIG, failure_reason
from varve.model.errors import BadInput, VarveError, nearest
from varve.planning.requested import ENVIRONMENT_TAG, LANDING_TAG
from varve.sources.landing import listing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from varve.dagster.environments.open_environment import OpenEnvironment

_log = logging.getLogger(__name__)


@unless_dropped
def land(environment: OpenEnvironment, dataset_name: str, file: Path, values: Mapping[str, str]) -> str:
    """Take a landing file into the overlay, in the place of the one of production; returns its partition.

    The file is copied into the environment's own landing folder. Raises BadInput for a dataset without landing
    files, one that grows file by file, and for values that are no partition; VarveError where the file cannot be
    read, or its rows cannot be taken.
    """
    dataset = environment.graph.datasets.get(dataset_name)
    if dataset is None:
        raise VarveError(f"there is no dataset {dataset_name!r}.{nearest(dataset_name, environment.graph.datasets)}")
    several = dataset.landing and listing.pattern_of(dataset).many
    if not dataset.landing or dataset.incremental is not None or several:
        kind = (
            "it has no landing files" if not dataset.landing
            else "its partitions may have several files, so that no file can take the place of a partition's"
            if several else "its partitions grow file by file"
        )  # fmt: skip
        raise BadInput(
            f"{dataset}: {kind}; nothing can be landed into environment {environment.name}. Nothing was read."
        )
    if values and not dataset.partitioning.dimensions:
        words = " ".join(f"{column}={text}" for column, text in values.items())
        raise BadInput(f"{dataset} has no partitions; leave {words} out. Nothing was read.")
    if set(values) != set(dataset.partitioning.names):
        raise BadInput(
            f"{dataset}: a file is of one partition; name it: "
            f"{' '.join(f'{name}=...' for name in dataset.partitioning.names)}. Nothing was read."
        )
    key = dataset.partitioning.parsed(values)
    if not dataset.partitioning.exists(key, environment.members):
        raise BadInput(
            f"{file}: {dataset} has no partition {key}, as no dynamic set has such a key. Nothing was read. Name "
            f"another one: {' '.join(f'{name}=...' for name in dataset.partitioning.names)}; or, where the key is new: "
            "varve keys add"
        )
    dagster_key, corrections = dataset.partitioning.dagster_key(key), environment.corrections
    corrections.keep(dataset, key, file)
    Environments(environment.connection).set_code(environment.name, environment.graph)
    Generations(environment.connection).enter(environment.name, environment.graph)
    job = environment.job([dg.AssetKey([dataset.db, dataset.table])])
    tags = {ENVIRONMENT_TAG: environment.name, LANDING_TAG: str(corrections.folder)}
    result = job.execute_in_process(
        run_config=RUN_CONFIG, instance=environment.instance, partition_key=dagster_key, tags=tags,
        raise_on_error=False,
        asset_selection=[dg.AssetKey([dataset.db, dataset.table])],
    )  # fmt: skip
    if not result.success:
        raise VarveError(f"{file} was not taken into environment {environment.name}: {failure_reason(result)}")
    return key.path


def look_at_arrivals(environment: OpenEnvironment, names: Collection[str]) -> None:
    """Look, as the sensor does, at what has arrived of those of these datasets whose rows have to be read again.

    Nobody may have looked yet: what is published by hand needs no sensor. Raises VarveError where it cannot be
    looked at.
    """
    of_others = Owners(environment.connection, environment.graph.project).others(names)
    datasets = [dataset for dataset in environment.carrying_over().read_again(names) if dataset.name not in of_others]
    unhurried = environment.project.settings.model_copy(update={"sensor_seconds": math.inf})
    look = ArrivalLook(Catalog(environment.connection), unhurried, environment.members, _log)
    look.at(datasets)
    if look.left_out:
        first = look.left_out[0]
        raise VarveError(
            f"{first.dataset}: what has arrived of it cannot be looked at: {first.reason} "
            "Its rows have to be read again for this declaration. Nothing was computed."
        )
