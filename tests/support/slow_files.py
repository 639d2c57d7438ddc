"""A file system that is far away: each call takes 30 ms, and is counted. It holds the files of this machine.

It is called hdfs, since it has folders and renames as that has.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 0.03


class Calls:
    """The calls of one file system: how many of each kind there were, and how many were under way at once."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self, kind: str) -> Iterator[None]:
        """A call: from when it is sent until its answer is here."""
        with self._lock:
            self.of[kind] += 1
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        time.sleep(SECONDS)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


class SlowFiles(LocalFileSystem):
    """The local files under `hdfs://`, at a distance; `calls` has what was asked since it was set."""

    protocol = "hdfs"
    cachable = False
    calls = Calls()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        paths = path if isinstance(path, list) else [path]
        stripped = [LocalFileSystem._strip_protocol(str(each).removeprefix("hdfs://")) for each in paths]
        return stripped if isinstance(path, list) else stripped[0]

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 - as in fsspec
        with self.calls.one("ls"):
            return super().ls(path, detail=detail, **kwargs)

    def exists(self, path: str, **kwargs: Any) -> bool:
        with self.calls.one("exists"):
            return bool(super().exists(path, **kwargs))

    def size(self, path: str) -> Any:
        with self.calls.one("size"):
            return super().size(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002
        with self.calls.one("rm"):
            super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        with self.calls.one("open"):
            return super()._open(path, mode=mode, block_size=block_size, **kwargs)


@contextmanager
def slow_files() -> Iterator[type[SlowFiles]]:
    """Let `hdfs://` lead to slow files meanwhile."""
    with patch.dict(_registry, {"hdfs": SlowFiles}):
        yield SlowFiles
