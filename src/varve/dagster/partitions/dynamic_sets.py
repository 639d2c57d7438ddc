"""Dynamic sets of partition keys. Dagster's instance is their only store, so that its UI and our planner agree.

A fold of a dynamic dimension with others is a set of its own in Dagster, as are windows that Dagster cannot express.
Both are derived from other values, and the `partition_sets` sensor keeps them up to date.

Not here: Dagster's definitions (definitions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension, alike, alike_message, check_member
from varve.model.partitions.partitioning import base_set, dagster_text, fold_texts, set_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dagster import DagsterInstance

    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import Value
    from varve.model.partitions.partitioning import Fold, Partitioning

# Of how many keys of a set the texts are remembered.
_REMEMBERED = 500_000


@dataclass(frozen=True)
class PartitionSets:
    """The dynamic sets that some partitionings use, in one Dagster instance."""

    instance: DagsterInstance
    partitionings: Sequence[Partitioning]

    @property
    def dimensions(self) -> dict[str, DynamicDimension]:
        """One dimension of each set, by the name of the set: one that says what fills it, where any does."""
        return _dimensions(self.partitionings)

    @property
    def folds(self) -> dict[str, Fold]:
        """The folds of a dynamic dimension with others, by the name of their set in Dagster."""
        return {
            name: fold
            for partitioning in self.partitionings
            for fold in partitioning.folds.values()
            if len(fold) > 1 and (name := set_of(fold))
        }

    def using(self, dimension: DynamicDimension) -> PartitionSets:
        """Return the sets of those partitionings that use the dimension's set: no other changes with it."""
        users = [each for each in self.partitionings if dimension.set_name in _dimensions([each])]
        return PartitionSets(self.instance, users)

    def members(self) -> Members:
        """Return the keys of each set, sorted; texts that are no key of the dimension are left out."""
        return members_of(self.partitionings, self.instance.get_dynamic_partitions)

    def add(self, dimension: DynamicDimension, keys: Iterable[Value]) -> list[Value]:
        """Add keys to a set and to all folds of it, and return the keys that were new, in order.

        The call may be repeated and interrupted. Raises VarveError for a key that no store can hold, or tell from
        another one; no key is added then.
        """
        unique_keys = list(dict.fromkeys(keys))
        for key in unique_keys:
            check_member(dimension.name, key)
        for key, other in self.too_like(dimension, unique_keys).items():
            raise VarveError(f"{alike_message(dimension.name, key, other)} Nothing was added.")
        present = set(self.instance.get_dynamic_partitions(base_set(dimension)))
        new = [key for key in unique_keys if dagster_text(key) not in present]
        self.instance.add_dynamic_partitions(base_set(dimension), [dagster_text(key) for key in new])
        self.using(dimension).follow()
        return new

    def too_like(self, dimension: DynamicDimension, keys: Iterable[Value]) -> dict[Value, Value]:
        """Those of the keys that no metastore could tell from another of the set, or of these, with that one."""
        members, listed = _parsed(dimension, self.instance.get_dynamic_partitions(base_set(dimension))), list(keys)
        new = set(listed).difference(members)
        return {key: other for key, other in alike([*members, *listed]).items() if key in new}

    def remove(self, dimension: DynamicDimension, keys: Iterable[Value]) -> None:
        """Take keys out of a set, and out of all folds of it. Their data stays until it is retired."""
        for key in keys:
            self.instance.delete_dynamic_partition(base_set(dimension), dagster_text(key))
        self.using(dimension).follow()

    def follow(self) -> list[str]:
        """Bring the folds in line with their dimensions, and return what was changed, as texts."""
        changes = self._respell()
        if not self.folds:
            return changes
        # The folds are read before the sets: otherwise a key that another run adds in between would look like a key
        # that was removed.
        folds = {name: self.instance.get_dynamic_partitions(name) for name in self.folds}
        members = self.members()
        for name, fold in self.folds.items():
            present, wanted = folds[name], fold_texts(fold, members)
            missing, surplus = sorted(set(wanted) - set(present)), sorted(set(present) - set(wanted))
            if missing:
                self.instance.add_dynamic_partitions(name, missing)
            for text in surplus:
                self.instance.delete_dynamic_partition(name, text)
            changes += [f"{name}: {len(missing)} keys added, {len(surplus)} taken out"] if missing or surplus else []
        return changes

    def _respell(self) -> list[str]:
        """Replace keys that somebody typed in Dagster's UI by their canonical spelling: `a~b` by `a%7Eb`."""
        changes = []
        for dimension in self.dimensions.values():
            name = base_set(dimension)
            for text, (_, canonical) in _spelt(dimension, self.instance.get_dynamic_partitions(name)):
                if canonical != text:
                    self.instance.add_dynamic_partitions(name, [canonical])
                    self.instance.delete_dynamic_partition(name, text)
                    changes.append(f"{name}: {text} is spelt {canonical}")
        return changes


def members_of(partitionings: Iterable[Partitioning], keys_of: Callable[[str], Sequence[str]]) -> Members:
    """Return the keys of each set of some partitionings, sorted, of those that Dagster has by the set's name."""
    return {
        name: _Keys(sorted(_parsed(dimension, keys_of(base_set(dimension)))))
        for name, dimension in _dimensions(partitionings).items()
    }


class _Keys(tuple["Value", ...]):  # noqa: SLOT001 - what is looked up in is made when somebody looks
    """The keys of a set, in order; whether one of a hundred thousand is among them is known at once."""

    @cached_property
    def _all(self) -> frozenset[Value]:
        return frozenset(self)

    def __contains__(self, key: object) -> bool:
        return key in self._all


def _dimensions(partitionings: Iterable[Partitioning]) -> dict[str, DynamicDimension]:
    by_set: dict[str, DynamicDimension] = {}
    for partitioning in partitionings:
        for dimension in partitioning.dimensions:
            # One of the datasets that share a set says what fills it, and it may be any of them.
            if isinstance(dimension, DynamicDimension) and (dimension.source or dimension.set_name not in by_set):
                by_set[dimension.set_name] = dimension
    return by_set


class _Known(NamedTuple):
    """The key that a text of Dagster's spells, and the text that should spell it."""

    key: Value
    text: str


@lru_cache(maxsize=256)
def _known(dimension: DynamicDimension) -> dict[str, _Known | None]:
    """What texts of a dimension have been found to spell: at each tick a set has the keys that it had."""
    del dimension
    return {}


def _spelt(dimension: DynamicDimension, texts: Iterable[str]) -> Iterator[tuple[str, _Known]]:
    """Each of the texts with the key that it spells; texts that are no key of the dimension are left out."""
    known = _known(dimension)
    for text in texts:
        if text not in known:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[text] = _looked_up(dimension, text)
        if (spelt := known[text]) is not None:
            yield text, spelt


def _looked_up(dimension: DynamicDimension, text: str) -> _Known | None:
    try:
        key = dimension.parse(unquote(text))
    except UnknownPartition:
        # Somebody added it by hand in the UI. A run of this partition fails with what is wrong with the key.
        return None
    return _Known(key, dagster_text(key))


def _parsed(dimension: DynamicDimension, texts: Iterable[str]) -> list[Value]:
    return [spelt.key for _, spelt in _spelt(dimension, texts)]
