"""Dynamic sets of partition keys, in Dagster's instance: their only home, so that its UI and our planner cannot differ.

A fold of a dynamic dimension with others is a set of its own in Dagster, as are windows that Dagster cannot tile; both
are made from what is known elsewhere, and kept in step by the `partition_sets` sensor.

Not here: Dagster's definitions (definitions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from varve.model.errors import UnknownPartition
from varve.model.partitions.dimension import DynamicDimension, check_member
from varve.model.partitions.partitioning import base_set, dagster_text, fold_texts, set_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagster import DagsterInstance

    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import Value
    from varve.model.partitions.partitioning import Fold, Partitioning


@dataclass(frozen=True)
class PartitionSets:
    """The dynamic sets that some partitionings use, in one Dagster instance."""

    instance: DagsterInstance
    partitionings: Sequence[Partitioning]

    @property
    def dimensions(self) -> dict[str, DynamicDimension]:
        """One dimension of each set, by the name of the set."""
        return {
            dimension.set_name: dimension
            for partitioning in self.partitionings
            for dimension in partitioning.dimensions
            if isinstance(dimension, DynamicDimension)
        }

    @property
    def folds(self) -> dict[str, Fold]:
        """The folds of a dynamic dimension with others, by the name of their set in Dagster."""
        return {
            name: fold
            for partitioning in self.partitionings
            for fold in partitioning.folds.values()
            if len(fold) > 1 and (name := set_of(fold))
        }

    def members(self) -> Members:
        """The keys of each set, in order; what a set has that is no key of its dimension is left out."""
        found = {}
        for name, dimension in self.dimensions.items():
            texts = self.instance.get_dynamic_partitions(base_set(dimension))
            found[name] = tuple(sorted(_parsed(dimension, texts)))
        return found

    def add(self, dimension: DynamicDimension, keys: Iterable[Value]) -> list[Value]:
        """Add keys to a set, and to all folds of it; the keys that were new, in order.

        Safe to repeat and to interrupt. Raises VarveError for a key that no store can hold; then none is added.
        """
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            check_member(dimension.name, key)
        before = set(self.instance.get_dynamic_partitions(base_set(dimension)))
        new = [key for key in wanted if dagster_text(key) not in before]
        self.instance.add_dynamic_partitions(base_set(dimension), [dagster_text(key) for key in new])
        self.follow()
        return new

    def remove(self, dimension: DynamicDimension, keys: Iterable[Value]) -> None:
        """Take keys out of a set, and out of all folds of it. Their data stays until it is retired."""
        for key in keys:
            self.instance.delete_dynamic_partition(base_set(dimension), dagster_text(key))
        self.follow()

    def follow(self) -> list[str]:
        """Make the folds what their dimensions say; what was done, in words."""
        done = self._respell()
        # The folds are looked at before the sets: a key that another run adds meanwhile is then never taken for one
        # that was removed.
        folds = {name: self.instance.get_dynamic_partitions(name) for name in self.folds}
        members = self.members()
        for name, fold in self.folds.items():
            there, wanted = folds[name], fold_texts(fold, members)
            missing, strange = sorted(set(wanted) - set(there)), sorted(set(there) - set(wanted))
            if missing:
                self.instance.add_dynamic_partitions(name, missing)
            for text in strange:
                self.instance.delete_dynamic_partition(name, text)
            done += [f"{name}: {len(missing)} keys added, {len(strange)} taken out"] if missing or strange else []
        return done

    def _respell(self) -> list[str]:
        """Keys that somebody added in Dagster's UI, spelt as everything else will ask for them: `a~b` as `a%7Eb`."""
        done = []
        for dimension in self.dimensions.values():
            name = base_set(dimension)
            for text in self.instance.get_dynamic_partitions(name):
                for spelt in map(dagster_text, _parsed(dimension, [text])):
                    if spelt != text:
                        self.instance.add_dynamic_partitions(name, [spelt])
                        self.instance.delete_dynamic_partition(name, text)
                        done.append(f"{name}: {text} is spelt {spelt}")
        return done


def _parsed(dimension: DynamicDimension, texts: Iterable[str]) -> list[Value]:
    found = []
    for text in texts:
        try:
            found.append(dimension.parse(unquote(text)))
        except UnknownPartition:
            # Added by hand in the UI; a run of it says what is wrong with it.
            continue
    return found
