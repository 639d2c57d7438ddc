"""What a project declares: a `Dataset` with the function that computes it, which Dagster has as one asset.

Dagster, a second of imports, is imported when somebody asks for the asset: a command needs the graph alone.

Not here: the datasets themselves (assets/), and what Dagster is given of them (asset_definitions.py).
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from varve.dagster.assets.function_code import code_of_function, source_text
from varve.model.broken_dataset import BrokenDataset
from varve.model.dataset import Dataset, refuse_unknown_store
from varve.model.errors import VarveError, some
from varve.model.reads import Reads
from varve.planning.graph import Graph, edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import dagster as dg

    from varve.cdc.captured_table import CapturedTable


# Arguments of a Dagster asset that follow from its dataset.
_OURS = {
    "key", "name", "key_prefix", "ins", "deps", "partitions_def", "backfill_policy", "io_manager_key", "code_version",
    "freshness_policy",
}  # fmt: skip
# What an input of a Dagster asset may not be called, beside Python's keywords.
RESERVED = {
    "context", "conf", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict", "int", "str", "float", "bool",
    "input", "output", "type",
}  # fmt: skip


@dataclass(frozen=True)
class DatasetAsset:
    """A dataset as one Dagster asset; calling it calls the function that was decorated.

    Attributes:
        dataset: what it computes.
        definition: makes what Dagster has of it; `asset` is that, made once.
        reads: the datasets that it reads.
        code_version: a hash of its code.
        captured: the table that it is a copy of, where it is one.
        source: the declaration as it is written: the text of its file, or of its function.
        compute: the function that returns its rows; None where a query makes them, or a run of another dataset or a
            capture writes them.
        lineage: by column of a SELECT, the columns of datasets of which it is made; empty for any other body.
        checks: the conditions of its EXPECT, by name.
    """

    dataset: Dataset
    definition: Callable[[], dg.AssetsDefinition | dg.AssetSpec]
    reads: tuple[Reads, ...]
    code_version: str
    captured: CapturedTable | None = None
    source: str = ""
    compute: Callable[..., Any] | None = None
    lineage: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, hash=False)
    checks: Mapping[str, str] = field(default_factory=dict, hash=False)

    @cached_property
    def asset(self) -> dg.AssetsDefinition | dg.AssetSpec:
        """How Dagster has it. Raises VarveError for an unknown store, and what Dagster raises of the declaration."""
        return self.definition()

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
    if ours := sorted((about or {}).keys() & _OURS):
        raise VarveError(f"dataset {dataset}: about has {some(ours)}, which follows from the dataset. Leave it out.")
    try:
        refuse_unknown_store(dataset.store)
    except VarveError as error:
        raise VarveError(f"dataset {dataset}: {error}") from None
    for each in upstreams.values():
        edge(dataset, each)

    def decorate(compute: Callable[..., Any]) -> DatasetAsset:
        _refuse_arguments(dataset, compute, upstreams)
        version, text = code_of_function(dataset, compute) if not code_version else (code_version, source_text(compute))

        def definition() -> dg.AssetsDefinition:
            from varve.dagster.assets.asset_definitions import computed_asset

            return computed_asset(dataset, compute, upstreams, version, about or {})

        declared = DatasetAsset(dataset, definition, tuple(upstreams.values()), version, source=text, compute=compute)
        if about or "dagster" in sys.modules:
            # What it refuses of the declaration is then an error of the file that is being imported, not of all.
            _ = declared.asset
        return declared

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
    """Raise VarveError for an argument that nothing fills, an entry that goes nowhere, and a name that is taken.

    Dagster would look for an asset of the argument's name.
    """
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(compute).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind not in many]
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if taken := sorted(upstreams.keys() & RESERVED):
        raise VarveError(
            f"dataset {dataset}: its function {compute.__name__} has an input {taken[0]!r}, a name that Dagster keeps "
            "for itself. Call it otherwise, in `reads` and in the function."
        )
    others = [name for place, name in enumerate(names) if name not in upstreams and name != "config" and place]
    if names and names[0] not in {*upstreams, "config"} and names[0].strip("_") not in {"", "context"}:
        others.insert(0, names[0])
    if others:
        raise VarveError(
            f"dataset {dataset}: its function {compute.__name__} takes {some(others)}, which `reads` does not name. "
            f"Write what it is: reads={{'{others[0]}': A_DATASET}}. The first argument is `context`; a resource is "
            "taken from it: about={'required_resource_keys': {'name'}}, and context.resources.name."
        )
    if not takes_all and (unused := [name for name in upstreams if name not in names]):
        raise VarveError(
            f"dataset {dataset}: `reads` names {some(unused)}, which its function {compute.__name__} does not take. "
            "Make it an argument of the function, or leave it out of `reads`."
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

    def definition() -> dg.AssetSpec:
        from varve.dagster.assets.asset_definitions import rejected_spec

        return rejected_spec(of.dataset, rejected)

    return DatasetAsset(rejected, definition, (Reads(of.dataset),), of.code_version, source=of.source)


def asset_of_project(dataset: Dataset, *, source: str) -> DatasetAsset:
    """A dataset that another project computes: Dagster's asset of the same key there, which is only read here."""

    def definition() -> dg.AssetSpec:
        from varve.dagster.assets.asset_definitions import spec_of_project

        return spec_of_project(dataset)

    return DatasetAsset(dataset, definition, (), "", source=source)


def captured_asset(captured: CapturedTable) -> DatasetAsset:
    """Return the dataset of a captured table, for other datasets to read."""

    def definition() -> dg.AssetSpec:
        from varve.dagster.assets.captured import captured_spec

        return captured_spec(captured)

    return DatasetAsset(captured.dataset, definition, (), "", captured)


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
