"""The file systems that hold lake and landing folders, as Python sees them (fsspec); Spark sees them through Hadoop.

Not here: which folders there are (stores/folders/layout.py).
"""

from __future__ import annotations

from typing import Any

import fsspec

from varve.model.errors import VarveError

# File systems by Hadoop's names. All others are object stores, where a rename is a copy and a folder is a prefix.
_WITH_RENAME = frozenset({"file", "local", "hdfs", "viewfs", "abfs", "abfss"})


def open_files(location: str) -> tuple[Any, str]:
    """The file system of a folder or URI, and the path in it.

    Listings are not cached: Spark writes the same folders, and an older listing would hide what it wrote.

    Raises VarveError where the package for this kind of file system is missing.
    """
    try:
        files, place = fsspec.core.url_to_fs(location, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise VarveError(
            f"{location} cannot be reached from Python: {error}. Nothing was read or changed. "
            "For s3a:// install the extra: pip install 'varve[s3]'."
        ) from error
    return files, str(place)


def renames_cheaply(location: str) -> bool:
    """Whether a rename is one step in this file system, however large the file."""
    scheme, separator, _ = location.partition("://")
    return not separator or scheme in _WITH_RENAME
