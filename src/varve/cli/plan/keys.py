"""`varve keys`: list, add and remove the keys of dynamic sets; assets add them by `partitions_of(context).add(...)`.

Not here: where the keys are stored (varve/dagster/partitions/dynamic_sets.py).
"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING

from rich.markup import escape

from varve.catalog.catalog import Catalog
from varve.catalog.planning.set_keys import SetKeys
from varve.cli.context import chosen_graph, chosen_settings
from varve.dagster.instance import open_instance
from varve.dagster.partitions.set_feed import feed
from varve.dagster.partitions.sets_sensor import grow, sets_of
from varve.model.errors import VarveError, counted
from varve.model.partitions.key import text_of
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.dagster.partitions.dynamic_sets import PartitionSets
    from varve.model.partitions.dimension import DynamicDimension


def show(console: Console, *, as_json: bool) -> None:
    """Print every dynamic set of the project with its keys."""
    with open_instance(chosen_settings()) as instance:
        sets = sets_of(instance, chosen_graph())
        keys_by_set = {name: [text_of(key) for key in keys] for name, keys in sets.members().items()}
    if as_json:
        console.print_json(json.dumps(keys_by_set))
        return
    if not keys_by_set:
        console.print("No dataset has a dynamic dimension.")
    for name, keys in keys_by_set.items():
        source = sets.dimensions[name].source
        # As a shell reads them: a key may have commas and blanks.
        listed = ", ".join(quote(key) if "," in key or " " in key else key for key in keys)
        console.print(f"[bold]{name}[/] {len(keys)}: {escape(listed)}", highlight=False)
        if source is not None:
            console.print(f"  from {escape(str(source))}; removed keys: {source.on_removal}", highlight=False)


def add(console: Console, name: str, texts: Sequence[str]) -> None:
    """Add keys to a set. Raises VarveError for an unknown set, UnknownPartition for a text that is no valid key."""
    with open_instance(chosen_settings()) as instance:
        sets = sets_of(instance, chosen_graph())
        dimension = _dimension(sets, name)
        new = sets.add(dimension, [dimension.parse(text) for text in texts])
    console.print(f"{len(new)} of {counted(len(texts), 'key')} {'is' if len(new) == 1 else 'are'} new in {name}.")


def remove(console: Console, name: str, texts: Sequence[str]) -> None:
    """Take keys out of a set; their data stays until it is retired. Raises VarveError for a key that is not in it."""
    with open_instance(chosen_settings()) as instance:
        sets = sets_of(instance, chosen_graph())
        dimension = _dimension(sets, name)
        members = set(sets.members()[name])
        keys = [dimension.parse(text) for text in texts]
        if unknown := [text_of(key) for key in keys if key not in members]:
            raise VarveError(f"the set {name} has no {', '.join(unknown)}. Nothing was removed.")
        _refuse_in_data(dimension, texts)
        sets.remove(dimension, keys)
    console.print(
        f"{counted(len(keys), 'key')} taken out of {name}. Partitions of datasets with that set are retired, by the "
        "sensor retirement or by varve retire; their batches are kept until a sweep. To have it again: varve keys add"
    )


def _refuse_in_data(dimension: DynamicDimension, texts: Sequence[str]) -> None:
    """Raise VarveError for keys that the next tick would add again, because the data have them."""
    if dimension.source is None:
        return
    with connect(chosen_settings(), application="varve keys") as connection:
        Catalog(connection).ensure_schema()
        in_data = set(SetKeys(connection, dimension.set_name, dimension.source).current().keys)
    if texts_in_data := [text for text in texts if text in in_data]:
        raise VarveError(
            f"the set {dimension.set_name} is filled by {dimension.source}, which has {', '.join(texts_in_data)}: the "
            "next tick would add them again. Nothing was removed. Correct the data, or leave them out by a WHERE."
        )


def follow(console: Console) -> None:
    """Update every set that follows data or another set, as the sensors do, until none changes any more."""
    settings = chosen_settings()
    with open_instance(settings) as instance, connect(settings, application="varve keys") as connection:
        Catalog(connection).ensure_schema()
        fed = feed(connection, instance, chosen_graph(), settings)
        for line in (*fed.changes, *fed.problems.values()):
            console.print(escape(line), highlight=False)
        while grown := grow(instance, chosen_graph()):
            for line in grown:
                console.print(line, markup=False, highlight=False)
    console.print("Every set is in step." if not fed.problems else "Every other key of the sets is in step.")


def _dimension(sets: PartitionSets, name: str) -> DynamicDimension:
    dimension = sets.dimensions.get(name)
    if dimension is None:
        set_names = ", ".join(sorted(sets.dimensions)) or "none"
        raise VarveError(f"no dynamic set {name!r}; the datasets of the project have {set_names}.")
    return dimension
