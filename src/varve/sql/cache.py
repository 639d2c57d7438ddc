"""The compiled datasets of the SQL files, cached under a hash of everything that they depend on.

The key of a file is a hash of its own text, of the versions of the code that compiles it, and of the columns and
partitions of the datasets that it reads. The keys of those datasets are not part of it, so that an upstream change
which leaves them unchanged invalidates nothing further (early cutoff).

The cache lies beside the files, in `__pycache__`, and is trusted like Python's own files there; where nothing can be
written there is no cache.

Not here: the content of an entry (sql_asset.py).
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

from varve.sql.code.foreign import foreign_text
from varve.sql.code.own_files import files_of
from varve.sql.names.own_functions import named_functions
from varve.sql.syntax.clauses.timeseries import calendar_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.model.dataset import Dataset
    from varve.sql.sql_asset import CompiledDataset
    from varve.sql.syntax.errors import SourceFile

_FILE = Path("__pycache__") / "varve-sql.pickle"
# What unpickling raises for a file that is damaged, or was written by another version.
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
    """The entries, by the path of the file: its text, its key and the compiled dataset.

    Attributes:
        verified: by path, the key under which Spark's analyzer found no problem in the file.
        hits: how many files were taken from the cache.
        misses: how many files had to be compiled.
    """

    entries: dict[str, tuple[str, str, CompiledDataset]] = field(default_factory=dict)
    verified: dict[str, str] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0

    @classmethod
    def beside(cls, folder: Path) -> Cache:
        """Read the cache of a folder; empty where there is none, or one of another version."""
        try:
            version, entries, verified = pickle.loads((folder / _FILE).read_bytes())  # noqa: S301 - trusted as a .pyc is
        except _UNREADABLE:
            return cls()
        return cls(entries, verified) if version == _versions() else cls()

    def write(self, folder: Path) -> None:
        """Write the cache beside the files, atomically; do nothing where that is impossible."""
        text = pickle.dumps((_versions(), self.entries, self.verified), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            (folder / _FILE).parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=(folder / _FILE).parent, delete=False) as file:
                file.write(text)
            Path(file.name).replace(folder / _FILE)
        except OSError:
            return

    def of(self, source: SourceFile) -> CompiledDataset | None:
        """Return the compiled dataset of a file with exactly this text, and these texts of its calendars.

        The datasets that it reads may have changed since.
        """
        entry = self.entries.get(source.path)
        return entry[2] if entry is not None and entry[0] == _parsed_text(source) else None

    def key_of(self, source: SourceFile) -> str | None:
        """Return the key under which a file is cached; None where it is not."""
        entry = self.entries.get(source.path)
        return entry[1] if entry is not None else None

    def keep(self, source: SourceFile, key: str, compiled: CompiledDataset) -> None:
        """Store the compiled dataset of a file, and replace the previous one."""
        self.entries[source.path] = (_parsed_text(source), key, compiled)

    def keep_only(self, paths: Iterable[str]) -> None:
        """Remove the entries of all files but these."""
        current_paths = set(paths)
        self.entries = {path: entry for path, entry in self.entries.items() if path in current_paths}
        self.verified = {path: key for path, key in self.verified.items() if path in current_paths}


def _parsed_text(source: SourceFile) -> str:
    """All that the parser reads of a file: its text, and its calendars, in which there may be a mistake by now."""
    calendars = calendar_texts(source)
    return f"{source.text}\0{calendars}" if calendars else source.text


def key_of(source: SourceFile, upstreams: Mapping[str, Dataset], entry: str, answer: object = None) -> str:
    """Return the key of a file: a hash of its text, of its calendars, its upstreams' columns, and its foreign module.

    `answer` is Spark's answer on its columns, where it was asked.
    """
    hashed = hashlib.blake2b(_versions().encode(), digest_size=16)
    for text in (
        source.path,
        source.text,
        foreign_text(entry, source.root),
        calendar_texts(source),
        repr(answer),
        # Sorted by file: also where a function is declared, how, and how often, decides what is a problem.
        *map(repr, named_functions(source)),
        *(_visible_schema(upstreams[name]) for name in sorted(upstreams)),
    ):
        hashed.update(f"{len(text)}:{text}".encode())
    return hashed.hexdigest()


def _visible_schema(dataset: Dataset) -> str:
    """Everything of a dataset that a reader's compilation depends on."""
    columns = [(column.name, str(column.type), column.nullable, column.comment) for column in dataset.schema.columns]
    return repr((dataset.name, columns, dataset.partitioning))


@cache
def _versions() -> str:
    """The versions of everything that compiles a file: of sqlglot, Spark, Python, and of Varve's own code."""
    library = Path(__file__).parents[1]
    rooms = [library / name for name in ("model", "planning", "sql")]
    files = [(str(path), os.stat(path)) for room in rooms for path in files_of(room, "**/*.py")]  # noqa: PTH116
    code = repr([(path, status.st_size, status.st_mtime_ns) for path, status in files])
    digest = hashlib.blake2b(code.encode(), digest_size=8).hexdigest()
    return f"{metadata.version('sqlglot')} {metadata.version('pyspark')} {sys.version} {digest}"
