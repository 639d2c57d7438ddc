"""Datasets that cannot be computed as their files are written, as Dagster shows them.

Each of them is an asset that nothing can materialise, with a check that fails and says why. So a broken file stops no
other dataset, and its own dataset does not silently disappear.

Not here: finding the errors of a file (varve/sql), and which datasets are broken (varve/sql/sql_project.py).
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.dagster.partitions.definitions import partitions_def
from varve.model.broken_dataset import UNTOUCHED, BrokenDataset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

CHECK = "file_can_be_used"
_log = logging.getLogger(__name__)


def key_of(broken: BrokenDataset) -> dg.AssetKey:
    """Return the asset key of a broken dataset: its own, or one made of the file's place where the file names none."""
    if broken.name:
        return dg.AssetKey(broken.name.split("."))
    # With its folders and its ending: each may be the only difference between two of them.
    return dg.AssetKey(["varve", "broken", *(re.sub(r"\W", "_", part) for part in Path(broken.file).parts)])


def told_apart(broken: Iterable[BrokenDataset]) -> list[BrokenDataset]:
    """Return them so that no two have one name: of those that declare the same dataset all but one go by their file."""
    names, result = set[str](), []
    for each in broken:
        result.append(replace(each, name="") if each.name in names else each)
        names.add(each.name)
    return result


def broken_spec(broken: BrokenDataset, names: Collection[str]) -> dg.AssetSpec:
    """Return the asset of a broken dataset, which stays visible with its history and cannot be run.

    `names` are the names of all datasets.
    """
    metadata: dict[str, Any] = {"varve/file": broken.file}
    return dg.AssetSpec(
        key_of(broken),
        deps=[dg.AssetKey(name.split(".")) for name in broken.reads if name in names and name != broken.name],
        description=f"**{broken.state}**: {UNTOUCHED}\n\n```\n{broken.reason}\n```",
        metadata=metadata,
        group_name=broken.name.partition(".")[0] or "varve",
        tags={"varve/broken": "yes"},
        partitions_def=None if broken.partitioning is None else partitions_def(broken.partitioning),
    )


def broken_check(broken: BrokenDataset) -> dg.AssetChecksDefinition:
    """Return the check of a broken dataset. It fails with the errors of its file, or names the upstream at fault."""
    key = key_of(broken)

    @dg.asset_check(
        asset=key, name=CHECK, description="Fails as long as the dataset cannot be computed as it is written."
    )
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            passed=False,
            description=f"{broken.title} is {broken.state}: {broken.headline}. {UNTOUCHED}",
            metadata={"varve/why": dg.MetadataValue.md(f"```\n{broken.reason}\n```")},
        )

    return check


def log_broken(broken: Iterable[BrokenDataset]) -> None:
    """Log one line for each broken dataset, in the process that loads the definitions."""
    for broken_dataset in broken:
        _log.error("%s is %s and left out: %s", broken_dataset.title, broken_dataset.state, broken_dataset.headline)
