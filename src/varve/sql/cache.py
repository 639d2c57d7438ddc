"""What was understood of each file, kept under a hash of all that it depends on.

The key of a file is a hash of its own text, of the versions of what reads it, and of the columns and partitions of what
it reads: not of the keys of those, so that a change upstream that changes neither ends there (early cutoff).

It lies beside the files as Python keeps its own, in `__pycache__`, and is trusted as much; where nothing can be written
there is none.

Not here: what is kept (sql_asset.py).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from varve.sql.foreign_code import foreign_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.model.dataset import Dataset
    from varve.sql.sql_asset import CompiledDataset
    from varve.sql.syntax.errors import SourceFile

_FILE = Path("__pycache__") / "varve-sql.pickle"
# Whatever is in a file that is damaged, or was written by another version.
_UNREADABLE = (
    OSError,
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    LookupError,
    ValueError,
    TypeError,
)


@dataclass
class Cache:
    """What is kept of each file, by its path, with the text that it had and the key that it was made under.

    Attributes:
        verified: by path, the key under which Spark's analyzer had nothing to say against the file.
        hits: how many files were not looked into.
        misses: how many were.
    """

    entries: dict[str, tuple[str, str, CompiledDataset]] = field(default_factory=dict)
    verified: dict[str, str] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0

    @classmethod
    def beside(cls, folder: Path) -> Cache:
        """The cache of a folder; an empty one where there is none, or one of another version."""
        try:
            version, entries, verified = pickle.loads((folder / _FILE).read_bytes())  # noqa: S301 - trusted as a .pyc is
        except _UNREADABLE:
            return cls()
        return cls(entries, verified) if version == _versions() else cls()

    def write(self, folder: Path) -> None:
        """Keep it beside the files, whole or not at all; nothing happens where that cannot be."""
        text = pickle.dumps((_versions(), self.entries, self.verified), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            (folder / _FILE).parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=(folder / _FILE).parent, delete=False) as file:
                file.write(text)
            Path(file.name).replace(folder / _FILE)
        except OSError:
            return

    def of(self, source: SourceFile) -> CompiledDataset | None:
        """What was kept of a file when it had this very text; what it reads may have changed since."""
        found = self.entries.get(source.path)
        return found[2] if found is not None and found[0] == source.text else None

    def key_of(self, source: SourceFile) -> str | None:
        """The key that a file was kept under."""
        found = self.entries.get(source.path)
        return found[1] if found is not None else None

    def keep(self, source: SourceFile, key: str, kept: CompiledDataset) -> None:
        """Keep what a file is, in the place of what it was."""
        self.entries[source.path] = (source.text, key, kept)

    def keep_only(self, paths: Iterable[str]) -> None:
        """Forget files that are no more."""
        wanted = set(paths)
        self.entries = {path: found for path, found in self.entries.items() if path in wanted}
        self.verified = {path: found for path, found in self.verified.items() if path in wanted}


def key_of(source: SourceFile, upstreams: Mapping[str, Dataset], entry: str, answer: object = None) -> str:
    """The key of a file: its text, the columns and partitions of the datasets that it reads, its foreign module.

    `answer` is what Spark has said of its columns, where it was asked.
    """
    hashed = hashlib.blake2b(_versions().encode(), digest_size=16)
    for text in (
        source.path,
        source.text,
        foreign_text(entry, source.root),
        repr(answer),
        *(_seen(upstreams[name]) for name in sorted(upstreams)),
    ):
        hashed.update(f"{len(text)}:{text}".encode())
    return hashed.hexdigest()


def _seen(dataset: Dataset) -> str:
    """What a reader sees of a dataset."""
    columns = [(each.name, str(each.type), each.nullable) for each in dataset.schema.columns]
    return repr((dataset.name, columns, dataset.partitioning))


@cache
def _versions() -> str:
    """The versions of all that decides what is understood and said: of sqlglot, Spark, Python, and this very code."""
    library = Path(__file__).parents[1]
    rooms = [library / name for name in ("model", "planning", "sql")]
    files = [(str(path), os.stat(path)) for room in rooms for path in sorted(room.rglob("*.py"))]  # noqa: PTH116
    code = repr([(path, found.st_size, found.st_mtime_ns) for path, found in files])
    digest = hashlib.blake2b(code.encode(), digest_size=8).hexdigest()
    return f"{metadata.version('sqlglot')} {metadata.version('pyspark')} {sys.version} {digest}"
