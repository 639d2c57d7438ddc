"""Calls of a file system, many at once: each takes as long as the way there and back, and this machine only waits.

Not here: the file systems themselves (varve/services/files.py).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

# So many calls wait at a time. With 30 ms for each, 100,000 take 94 s and not 50 minutes; an object store allows
# thousands a second, and a NameNode has more than one client.
AT_ONCE = 32
_NAMED = 3


class _NotBegun(Exception):
    """Another call had failed before this one could begin."""


def at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `work` returns for each item, in the order of the items; at most `AT_ONCE` are worked on at a time.

    After the first error none is begun any more. Raises the error of the first item, in their order, that failed, with
    a note of the others that did.
    """
    listed = list(items)
    if len(listed) <= 1:
        return [work(item) for item in listed]
    failed = threading.Event()

    def call(item: T) -> R:
        if failed.is_set():
            raise _NotBegun
        try:
            return work(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(min(AT_ONCE, len(listed)), thread_name_prefix="files") as pool:
        futures = [pool.submit(call, item) for item in listed]
    errors = [error for future in futures if (error := future.exception()) is not None]
    errors = [error for error in errors if not isinstance(error, _NotBegun)]
    if not errors:
        return [future.result() for future in futures]
    first, *others = errors
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        first.add_note(f"Also failed: {'; '.join(str(error) for error in others[:_NAMED])}{more}.")
    raise first
