"""A dataset as Dagster has it: a definition of an asset, or its specification where no run of its own writes it.

Importing this imports Dagster, a second.

Not here: how a dataset is declared (datasets.py), and the body of a dataset in SQL (sql_runs.py).
"""

from __future__ import annotations

import datetime as dt
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.dagster.partitions.definitions import dataset_partitions_def, warn_of_size
from varve.dagster.partitions.mappings import compiled
from varve.model.errors import VarveError
from varve.planning.graph import edge
from varve.stores.open import store_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varve.model.dataset import Dataset
    from varve.model.reads import Reads


def io_manager_key(store: str) -> str:
    """The key of the IO manager of a store's datasets.

    An asset that is no dataset keeps Dagster's default IO manager, and starts no Spark.
    """
    return f"{store}_io_manager"


def computed_asset(
    dataset: Dataset,
    compute: Callable[..., Any],
    reads: Mapping[str, Reads],
    code_version: str,
    about: Mapping[str, Any],
) -> dg.AssetsDefinition:
    """The asset of a dataset that a function computes.

    Args:
        dataset: what it computes.
        compute: the function.
        reads: what it reads, by the names of the function's arguments.
        code_version: a hash of its code.
        about: further arguments of the asset.

    Raises VarveError for an unknown store, Dagster's errors for what it refuses of the function or of `about`.
    """
    warn_of_size(dataset.name, dataset.partitioning)
    with warnings.catch_warnings():
        # Multi-dimensional mappings and backfill policies are called beta; the product stands on both.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _decorator(dataset, reads, code_version, {**_output_type(compute), **about})(compute)


def _output_type(compute: Callable[..., Any]) -> dict[str, Any]:
    """What Dagster is to take for the type of the output where the function says that it returns nothing.

    Dagster would call no IO manager then: the run would succeed, publish nothing, and be asked for again and again.
    """
    returned = inspect.signature(compute).return_annotation
    return {"dagster_type": dg.Any} if returned is None or returned == "None" else {}


def _decorator(
    dataset: Dataset, upstreams: Mapping[str, Reads], version: str, about: Mapping[str, Any]
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    mappings = {name: compiled(edge(dataset, reads).dependency) for name, reads in upstreams.items()}
    shown: dict[str, Any] = {
        "description": dataset.comment,
        "group_name": dataset.db,
        "kinds": _kinds(dataset),
        "owners": list(dataset.owners),
    }
    shown |= {name: value for name, value in about.items() if name not in {"metadata", "required_resource_keys"}}
    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=dg.AssetKey([dataset.db, dataset.table]),
        ins={
            name: dg.AssetIn(
                key=dg.AssetKey([reads.dataset.db, reads.dataset.table]), partition_mapping=mappings[name].mapping
            )
            for name, reads in upstreams.items()
        },
        partitions_def=dataset_partitions_def(dataset),
        # A run costs seconds, whatever it computes: any range of partitions is one run and one Spark job.
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=io_manager_key(dataset.store),
        # Runs at once by store: `dagster instance concurrency set warehouse 2`; without that as many as there may be.
        pool=str(dataset.store),
        required_resource_keys={"builds", "landing", "spark", *about.get("required_resource_keys", ())},
        code_version=version,
        freshness_policy=freshness_policy(dataset),
        metadata={
            **_metadata(dataset),
            **{
                f"varve/reads/{reads.dataset.name}": f"fewer partitions than Dagster shows: {mappings[name].why}"
                if mappings[name].why
                else "exactly the partitions that Dagster shows"
                for name, reads in upstreams.items()
            },
            **about.get("metadata", {}),
        },
        **shown,
    )
    return decorate


def rejected_spec(landing: Dataset, rejected: Dataset) -> dg.AssetSpec:
    """The rejected rows of a landing dataset: the runs of that write them."""
    return _spec(
        rejected,
        f"{rejected.comment} Runs of {landing.name} write it.",
        deps=[dg.AssetKey([landing.db, landing.table])],
    )


def spec_of_project(dataset: Dataset) -> dg.AssetSpec:
    """A dataset that another project computes: Dagster's asset of the same key there, which is only read here."""
    return _spec(dataset, f"{dataset.comment} Project {dataset.of_project} computes it.".strip())


def freshness_policy(dataset: Dataset) -> dg.FreshnessPolicy | None:
    """Dagster's policy for FRESH WITHIN of a dataset without a time dimension, in whole minutes at least; else None.

    Dagster counts from the last materialisation of the asset, whichever partition that was: of windows that says
    nothing. They have the check `fresh`.
    """
    fresh_within = dataset.policy.fresh_within
    if fresh_within is None or dataset.partitioning.time is not None:
        return None
    return dg.FreshnessPolicy.time_window(max(fresh_within, dt.timedelta(minutes=1)))


def _spec(dataset: Dataset, description: str, *, deps: list[dg.AssetKey] | None = None) -> dg.AssetSpec:
    return dg.AssetSpec(
        dg.AssetKey([dataset.db, dataset.table]),
        deps=deps or [],
        description=description,
        group_name=dataset.db,
        kinds=_kinds(dataset),
        owners=list(dataset.owners),
        partitions_def=dataset_partitions_def(dataset),
        metadata=_metadata(dataset),
    ).with_io_manager_key(io_manager_key(dataset.store))


def _storage(dataset: Dataset) -> str:
    try:
        return store_type(dataset.store).storage
    except VarveError as error:
        raise VarveError(f"dataset {dataset}: {error}") from None


def _kinds(dataset: Dataset) -> set[str]:
    return {"spark", _storage(dataset)}


def _metadata(dataset: Dataset) -> dict[str, Any]:
    return {
        "dagster/table_name": dataset.name,
        "dagster/storage_kind": _storage(dataset),
        "dagster/column_schema": table_schema(dataset),
    }


def table_schema(dataset: Dataset) -> dg.TableSchema:
    """The columns of a dataset as Dagster shows them."""
    described = dict.fromkeys(dataset.partitioning.names, "partition column")
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.type.lower(),
                column.comment or described.get(column.name),
                dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in (*dataset.partition_columns, *dataset.schema.columns)
        ]
    )
