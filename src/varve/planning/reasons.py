"""Why a partition, or a run of several, is computed, in words for people: run tags, `varve plan` and `varve why`.

Not here: which of the reasons holds (judgement/judging.py), and which tags carry it (requested.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from varve.model.errors import counted, cut
from varve.model.partitions.key import parse_path
from varve.model.partitions.partitioning import dagster_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

# A longer text would fill the page of runs; Dagster stores tags of any length.
LONGEST = 300
# What has happened to a landing file, after the table of its dataset: `departures re-sent`.
ARRIVED, RE_SENT = "arrived", "re-sent"
# Of a partition that is missing: of the first windows of what it reads it may be so for good.
NOTHING_TO_READ = "nothing that it reads is there; where nothing will come, `varve backfill start` computes it without"
_NAMED = 3


class InputName(NamedTuple):
    """An input, by its dataset and the path of its partition."""

    source: str
    path: str


@dataclass(frozen=True, slots=True)
class ChangedInputs:
    """The inputs in which a partition differs from what its batch was made from.

    Attributes:
        new: inputs at another batch than it was made from, or that were not there then.
        gone: inputs that it was made from and that are not there any more.
    """

    new: frozenset[InputName] = frozenset()
    gone: frozenset[InputName] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)

    @classmethod
    def together(cls, changes: Iterable[ChangedInputs]) -> ChangedInputs:
        """The changed inputs of several partitions, of which each may have some in common with others."""
        listed = list(changes)
        return cls(
            frozenset().union(*(change.new for change in listed)),
            frozenset().union(*(change.gone for change in listed)),
        )

    def in_words(self, dataset: Dataset, present: int) -> str:
        """`2 of 21 inputs new: delays 2013-01-05|EWR, ...|JFK`, where `present` inputs are there now."""
        phrases = []
        if self.new:
            phrases.append(f"{len(self.new)} of {counted(present, 'input')} new: {_names(dataset, self.new)}")
        if self.gone:
            phrases.append(f"{counted(len(self.gone), 'input')} gone: {_names(dataset, self.gone)}")
        return "; ".join(phrases)

    def in_short(self, present: int) -> str:
        """The same without names, for a line of few characters: `2 of 21 new`."""
        new = [f"{len(self.new)} of {present} new"] if self.new else []
        gone = [f"{len(self.gone)} gone"] if self.gone else []
        return ", ".join(new + gone)


UNCHANGED = ChangedInputs()


def partitions_in_words(dataset: Dataset, keys: Sequence[PartitionKey]) -> str:
    """The partitions of a run: `2013-01-05`, or `2013-01-05...2013-01-07 (3 partitions)`.

    `keys` are in order; of more than one the first and the last are named, as Dagster spells them. What both have in
    common is said once: `2013-01-05|EWR...LGA (3 partitions)`.
    """
    first, last = _ends(dataset, keys)
    return cut(f"{first}...{last} ({counted(len(keys), 'partition')})" if len(keys) > 1 else first, LONGEST)


def partitions_in_short(dataset: Dataset, keys: Sequence[PartitionKey]) -> str:
    """The same for a line of few characters: `2013-01-05...07 (9)`.

    Where the first and the last differ in more than their windows, their windows alone are named.
    """
    first, last = _ends(dataset, keys)
    time = dataset.partitioning.time
    if time is not None:
        windows = [dagster_text(time.value_in(key)) for key in (keys[0], keys[-1])]
        if "|" in first and "|" in last and windows[0] != windows[1]:
            first, last = windows
        if first.startswith(windows[0]) and last.startswith(windows[1]):
            last = last.removeprefix(_common_lead(*windows))
    return cut(f"{first}...{last} ({len(keys):,})" if len(keys) > 1 else first, LONGEST)


def without_dataset(reason: str, dataset: Dataset) -> str:
    """A reason for where its dataset stands beside it: `departures re-sent` is `re-sent`."""
    return {f"{dataset.table} {what}": what for what in (ARRIVED, RE_SENT)}.get(reason, reason)


def path_in_words(path: str) -> str:
    """A partition as Dagster spells it, from its path: `day=2013-01-05/origin=EWR` is `2013-01-05|EWR`.

    Of more than two dimensions, which Dagster folds, it is the path itself.
    """
    values = parse_path(path)
    return "|".join(text for _, text in sorted(values)) if len(values) <= 2 else path


def _ends(dataset: Dataset, keys: Sequence[PartitionKey]) -> tuple[str, str]:
    """The first and the last partition as Dagster spells them, what both have in common in one of them only."""
    first, last = (dataset.partitioning.to_dagster(key) for key in (keys[0], keys[-1]))
    if len(keys) == 1:
        return first, last
    (first_lead, first_bar, first_rest), (last_lead, _, last_rest) = first.partition("|"), last.partition("|")
    if first_bar and first_lead == last_lead:
        last = last_rest
    elif first_bar and first_rest == last_rest:
        first = first_lead
    return first, last


def _common_lead(first: str, last: str) -> str:
    """What the texts of two windows begin with, up to a mark between their parts: `2013-01-`."""
    lead = ""
    for part in re.findall(r"[^-T]*[-T]", first):
        if not last.startswith(lead + part):
            break
        lead += part
    return lead


def _names(dataset: Dataset, names: Collection[InputName]) -> str:
    """The first names, by dataset: of neighbours with the same first value only the other value is repeated."""
    listed = sorted(names)
    phrases = []
    for source, group in groupby(listed[:_NAMED], key=lambda name: name.source):
        texts: list[str] = []
        before = ""
        for text in (path_in_words(name.path) for name in group):
            lead, separator, rest = text.partition("|")
            texts.append(f"...|{rest}" if separator and lead == before else text)
            before = lead
        phrases.append(f"{source.removeprefix(f'{dataset.db}.')} {', '.join(texts)}")
    more = len(listed) - _NAMED
    return "; ".join(phrases) + (f" and {more:,} more" if more > 0 else "")
