"""Which files that have arrived are, by their names, of the partition for which they are noted in the catalog.

Another declaration may name its files otherwise, and have other partitions under the same paths: as days begin where
hours do. Not here: the names themselves (varve/model/landing/pattern.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.model.errors import UnknownPartition
from varve.model.landing.pattern import FilePattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.dataset import Dataset

# Of the files of a partition the first is named.
_MORE_FILES = re.compile(r" and \d+ more$")


def misnamed(dataset: Dataset, uris: Mapping[str, str]) -> set[str]:
    """Of these paths with the uris of their files, those whose files are of no partition, or of another one.

    Of a dataset that takes no landing files, none.
    """
    if not dataset.landing:
        return set()
    pattern = FilePattern.of(dataset.landing_options, dataset.partitioning)
    folder = f"/{dataset.db}/{dataset.table}/"
    names = {path: _MORE_FILES.sub("", uri).rpartition(folder)[2] for path, uri in uris.items()}
    return {path for path, name in names.items() if not _is_of(pattern, name, path)}


def _is_of(pattern: FilePattern, name: str, path: str) -> bool:
    try:
        return pattern.key(name).path == path
    except UnknownPartition:
        return False
