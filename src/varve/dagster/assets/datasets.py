"""A `Dataset` and the function that computes it, as one Dagster asset.

Not here: the datasets themselves (assets/).
"""

from __future__ import annotations

import datetime as dt
import inspect
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.dagster.assets.function_code import code_of_function, source_text
from varve.dagster.partitions.definitions import dataset_partitions_def, warn_of_size
from varve.dagster.partitions.mappings import compiled
from varve.model.broken_dataset import BrokenDataset
from varve.model.dataset import Dataset
from varve.model.errors import VarveError, some
from varve.model.reads import Reads
from varve.planning.graph import Graph, edge
from varve.stores.open import store_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from varve.cdc.captured_table import CapturedTable


# Arguments of a Dagster asset that follow from its dataset.
_OURS = {
    "key", "name", "key_prefix", "ins", "deps", "partitions_def", "backfill_policy", "io_manager_key", "code_version",
    "freshness_policy",
}  # fmt: skip


def io_manager_key(store: str) -> str:
    """The key of the IO manager of a store's datasets.

    An asset that is no dataset keeps Dagster's default IO manager, and starts no Spark.
    """
    return f"{store}_io_manager"


@dataclass(frozen=True)
class DatasetAsset:
    """A dataset as one Dagster asset; calling it calls the function that was decorated.

    Attributes:
        dataset: what it computes.
        asset: how Dagster has it.
        reads: the datasets that it reads.
        code_version: a hash of its code.
        captured: the table that it is a copy of, where it is one.
        source: the declaration as it is written: the text of its file, or of its function.
        compute: the function that returns its rows; None where a run of another dataset, or a capture, writes them.
        lineage: by column of a SELECT, the columns of datasets of which it is made; empty for any other body.
        checks: the conditions of its EXPECT, by name.
    """

    dataset: Dataset
    asset: dg.AssetsDefinition | dg.AssetSpec
    reads: tuple[Reads, ...]
    code_version: str
    captured: CapturedTable | None = None
    source: str = ""
    compute: Callable[..., Any] | None = None
    lineage: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, hash=False)
    checks: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __call__(self, *arguments: Any, **inputs: Any) -> Any:
        """Call the author's function with these arguments: nothing is started, stored or published.

        `varve.testing.context_for` makes a context for it. Raises VarveError for a dataset without a function.
        """
        if self.compute is None:
            raise VarveError(f"dataset {self.dataset} has no function of its own that could be called.")
        return self.compute(*arguments, **inputs)


def dataset_asset(
    dataset: Dataset,
    *,
    reads: Mapping[str, Dataset | Reads] | None = None,
    code_version: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], DatasetAsset]:
    """Make the decorated function compute `dataset`.

    It stays callable in a test: `revenue(context, orders=frame)` calls the function as it is written.

    The function takes `context`, and one Spark DataFrame for each entry of `reads`: all partitions of that dataset
    which the partitions of the run read, at the batches that were current when the run began. It returns a DataFrame
    with the declared columns, for all partitions of the run. An entry says by `Reads` which partitions those are, where
    they are not simply those that overlap in time and have the same keys.

    `code_version` is by default a hash of what the function computes: of its text without comments, and of what it
    needs of its module and of the project. `about` are further arguments of the Dagster asset, such as `tags`, or
    `required_resource_keys` for what the function takes from `context.resources`.

    Raises VarveError, naming the datasets and the dimension, where it cannot be said which partitions are read, where a
    dataset is read twice, and for an argument of the function that `reads` does not name.
    """
    upstreams = {
        name: Reads(upstream) if isinstance(upstream, Dataset) else upstream for name, upstream in (reads or {}).items()
    }
    _refuse_twice(dataset, upstreams)
    warn_of_size(dataset.name, dataset.partitioning)

    def decorate(compute: Callable[..., Any]) -> DatasetAsset:
        is_ours = (compute.__module__ or "").partition(".")[0] == "varve"
        if not is_ours:
            _refuse_arguments(dataset, compute, upstreams)
        if not code_version:
            version, text = code_of_function(dataset, compute)
        else:
            # Python reads a file each time for the text of a function; that of a SQL dataset is one of ours.
            version, text = code_version, "" if is_ours else source_text(compute)
        with warnings.catch_warnings():
            # Multi-dimensional mappings and backfill policies are called beta; the product stands on both.
            warnings.simplefilter("ignore", dg.BetaWarning)
            asset = _asset(dataset, upstreams, version, about or {})(compute)
        return DatasetAsset(dataset, asset, tuple(upstreams.values()), version, source=text, compute=compute)

    return decorate


def _refuse_twice(dataset: Dataset, upstreams: Mapping[str, Reads]) -> None:
    names: dict[str, str] = {}
    for name, reads in upstreams.items():
        if (other := names.setdefault(reads.dataset.name, name)) != name:
            raise VarveError(
                f"dataset {dataset} reads {reads.dataset} twice, as {other} and as {name}. Write one entry, with a "
                "rule that covers both, and tell the rows apart by their partition columns."
            )


def _refuse_arguments(dataset: Dataset, compute: Callable[..., Any], upstreams: Mapping[str, Reads]) -> None:
    """Raise VarveError for an argument that nothing fills: Dagster would look for an asset of that name."""
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name, parameter in inspect.signature(compute).parameters.items() if parameter.kind not in many]
    others = [name for place, name in enumerate(names) if name not in upstreams and name != "config" and place]
    if names and names[0] not in {*upstreams, "config"} and names[0].strip("_") not in {"", "context"}:
        others.insert(0, names[0])
    if others:
        raise VarveError(
            f"dataset {dataset}: its function {compute.__name__} takes {some(others)}, which `reads` does not name. "
            f"Write what it is: reads={{'{others[0]}': A_DATASET}}. The first argument is `context`; a resource is "
            "taken from it: about={'required_resource_keys': {'name'}}, and context.resources.name."
        )


def with_rejected(declared: Iterable[DatasetAsset | BrokenDataset]) -> list[DatasetAsset | BrokenDataset]:
    """All that is declared, and the rejected rows of each landing dataset that lets some be: nobody declares those.

    Raises VarveError where another dataset has its name.
    """
    everything = list(declared)
    listed = [item for item in everything if isinstance(item, DatasetAsset)]
    given = {declared_asset.dataset.name: declared_asset.dataset for declared_asset in listed}
    for declared_asset in listed:
        rejected = declared_asset.dataset.rejected_dataset()
        if rejected is None:
            continue
        other = given.get(rejected.name)
        if other is None:
            given[rejected.name] = rejected
            everything.append(rejected_asset(declared_asset, rejected))
        elif other.rejected_of != declared_asset.dataset.name:
            what = f"the rejected rows of {other.rejected_of}" if other.rejected_of else "another dataset"
            raise VarveError(
                f"dataset {declared_asset.dataset}: its rejected rows are to go into {rejected.name}, which is "
                f"{what}; take another name for one of them."
            )
    return everything


def rejected_asset(of: DatasetAsset, rejected: Dataset) -> DatasetAsset:
    """The dataset of the rejected rows of a landing dataset: the runs of that publish both."""
    landing = of.dataset
    spec = dg.AssetSpec(
        dg.AssetKey([rejected.db, rejected.table]),
        deps=[dg.AssetKey([landing.db, landing.table])],
        description=f"{rejected.comment} Runs of {landing.name} write it.",
        group_name=rejected.db,
        kinds=_kinds(rejected),
        owners=list(rejected.owners),
        partitions_def=dataset_partitions_def(rejected),
        metadata=_metadata(rejected),
    ).with_io_manager_key(io_manager_key(rejected.store))
    return DatasetAsset(rejected, spec, (Reads(landing),), of.code_version, source=of.source)


def asset_of_project(dataset: Dataset, *, source: str) -> DatasetAsset:
    """A dataset that another project computes: Dagster's asset of the same key there, which is only read here."""
    spec = dg.AssetSpec(
        dg.AssetKey([dataset.db, dataset.table]),
        description=f"{dataset.comment} Project {dataset.of_project} computes it.".strip(),
        group_name=dataset.db,
        kinds=_kinds(dataset),
        owners=list(dataset.owners),
        partitions_def=dataset_partitions_def(dataset),
        metadata=_metadata(dataset),
    ).with_io_manager_key(io_manager_key(dataset.store))
    return DatasetAsset(dataset, spec, (), "", source=source)


def _asset(
    dataset: Dataset, upstreams: Mapping[str, Reads], version: str, about: Mapping[str, Any]
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    mappings = {name: compiled(edge(dataset, reads).dependency) for name, reads in upstreams.items()}
    if ours := sorted(about.keys() & _OURS):
        raise VarveError(f"dataset {dataset}: about has {some(ours)}, which follows from the dataset. Leave it out.")
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


def graph_of(declared: Iterable[DatasetAsset | BrokenDataset]) -> Graph:
    """The graph of these datasets, and of their rejected rows.

    Raises VarveError for an unknown dataset, a circle, and rejected rows that go into another dataset.
    """
    everything = with_rejected(declared)
    listed = [item for item in everything if isinstance(item, DatasetAsset)]
    return Graph(
        {declared_asset.dataset.name: declared_asset.dataset for declared_asset in listed},
        {declared_asset.dataset.name: declared_asset.reads for declared_asset in listed},
        {declared_asset.dataset.name: declared_asset.code_version for declared_asset in listed},
        tuple(item for item in everything if isinstance(item, BrokenDataset)),
        {declared_asset.dataset.name: declared_asset.source for declared_asset in listed},
        {item.dataset.name: item.lineage for item in listed if item.lineage},
        {
            item.dataset.name: {expectation.name: expectation.condition for expectation in item.dataset.expectations}
            | dict(item.checks)
            for item in listed
            if item.dataset.expectations or item.checks
        },
    )


def freshness_policy(dataset: Dataset) -> dg.FreshnessPolicy | None:
    """Dagster's policy for FRESH WITHIN of a dataset without a time dimension, in whole minutes at least; else None.

    Dagster counts from the last materialisation of the asset, whichever partition that was: of windows that says
    nothing. They have the check `fresh`.
    """
    fresh_within = dataset.policy.fresh_within
    if fresh_within is None or dataset.partitioning.time is not None:
        return None
    return dg.FreshnessPolicy.time_window(max(fresh_within, dt.timedelta(minutes=1)))


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
