"""`varve keys`: list, add and remove the keys of dynamic sets; assets add them by `partitions_of(context).add(...)`.

Not here: where the keys are stored (varve/dagster/partitions/dynamic_sets.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from varve.cli.context import chosen_graph, chosen_settings
from varve.dagster.instance import open_instance
from varve.dagster.partitions.sets_sensor import grow, sets_of
from varve.model.errors import VarveError
from varve.model.partitions.key import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.dagster.partitions.dynamic_sets import PartitionSets
    from varve.model.partitions.dimension import DynamicDimension


def show(console: Console, *, as_json: bool) -> None:
    """Print every dynamic set of the project with its keys."""
    with open_instance(chosen_settings()) as instance:
        keys_by_set = {
            name: [text_of(key) for key in keys] for name, keys in sets_of(instance, chosen_graph()).members().items()
        }
    if as_json:
        console.print_json(json.dumps(keys_by_set))
        return
    if not keys_by_set:
        console.print("No dataset has a dynamic dimension.")
    for name, keys in keys_by_set.items():
        console.print(f"[bold]{name}[/] {len(keys)}: {', '.join(keys)}", highlight=False)


def add(console: Console, name: str, texts: Sequence[str]) -> None:
    """Add keys to a set. Raises VarveError for an unknown set, UnknownPartition for a text that is no valid key."""
    with open_instance(chosen_settings()) as instance:
        sets = sets_of(instance, chosen_graph())
        dimension = _dimension(sets, name)
        new = sets.add(dimension, [dimension.parse(text) for text in texts])
    console.print(f"{len(new)} of {len(texts)} keys are new in {name}.")


def remove(console: Console, name: str, texts: Sequence[str]) -> None:
    """Take keys out of a set; their data stays until it is retired. Raises VarveError for a key that is not in it."""
    with open_instance(chosen_settings()) as instance:
        sets = sets_of(instance, chosen_graph())
        dimension = _dimension(sets, name)
        members = set(sets.members()[name])
        keys = [dimension.parse(text) for text in texts]
        if unknown := [text_of(key) for key in keys if key not in members]:
            raise VarveError(f"the set {name} has no {', '.join(unknown)}. Nothing was removed.")
        sets.remove(dimension, keys)
    console.print(f"{len(keys)} keys taken out of {name}; their data stays.")


def follow(console: Console) -> None:
    """Update every set that follows another, as the sensor `partition_sets` does, until none changes any more."""
    with open_instance(chosen_settings()) as instance:
        while grown := grow(instance, chosen_graph()):
            for line in grown:
                console.print(line, highlight=False)
    console.print("Every set is in step.")


def _dimension(sets: PartitionSets, name: str) -> DynamicDimension:
    dimension = sets.dimensions.get(name)
    if dimension is None:
        set_names = ", ".join(sorted(sets.dimensions)) or "none"
        raise VarveError(f"no dynamic set {name!r}; the datasets of the project have {set_names}.")
    return dimension
