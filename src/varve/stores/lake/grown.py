"""Batches of partitions that grow: the data files of the batch before and those of the new rows; or few files again.

The files of the batch before are not read: they are linked where the lake is a local folder, else copied as bytes. A
link is as good as a copy, because a file of a batch is never written again, and a sweep removes names.

Not here: which files are new (varve/sources/landing/growth.py), and writing (folders/write.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from varve.catalog.parts import added_content
from varve.model.batch import Part
from varve.model.errors import NOTHING_LOST, MissingUpstream, VerifyFailed
from varve.services.files import open_files
from varve.stores.folders.footers import data_files
from varve.stores.folders.write import EMPTY_FILE, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspec import AbstractFileSystem
    from pyspark.sql import DataFrame

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.stores.folders.layout import Layout

_THREADS = 8
# What is put together comes into files of about so many bytes.
_BYTES_A_FILE = 128 << 20


def with_folded(build: Build, frame: DataFrame, scan: Callable[[Sequence[str]], DataFrame]) -> DataFrame:
    """The frame with the rows of those batches that the build puts together, in few files; `scan` reads folders."""
    for growth in build.growth.values():
        if growth.fold and growth.base is not None:
            rows = scan([growth.base.location]).coalesce(max(1, -(-growth.base.size // _BYTES_A_FILE)))
            frame = rows.unionByName(frame)
    return frame


def with_base(layout: Layout, build: Build, staged: Sequence[StagedBatch]) -> list[StagedBatch]:
    """The batches with what they keep of those before: files, rows and the hash of all.

    Raises MissingUpstream where the batch before is gone, and VerifyFailed where the files are not those it had.
    """
    if not build.growth:
        return list(staged)
    new = {batch.partition: batch for batch in staged}
    added = [key for key, growth in build.growth.items() if growth.base is not None and not growth.fold]
    if added:
        files, _ = open_files(layout.root)
        for key in added:
            base = build.growth[key].base
            assert base is not None
            _take_over(files, build, base.location, new[key].location)
    whole = {batch.partition: batch for batch in survey(layout, replace(build, partitions=tuple(added)))}
    return [_whole(build, batch, whole.get(batch.partition, batch)) for batch in staged]


def _whole(build: Build, own: StagedBatch, found: StagedBatch) -> StagedBatch:
    """A batch as it lies there: `own` are the rows that are new of it."""
    growth = build.growth.get(own.partition)
    if growth is None:
        return own
    part = Part(build.batch_id, own.location, own.rows, own.size, growth.files)
    if growth.base is None:
        return replace(own, parts=(part,))
    if growth.fold:
        other = None not in {own.content, growth.base.content} and own.content != growth.base.content
        _refuse_other_rows(build, own, growth.base.rows, own.rows, "of another hash" if other else "")
        return replace(own, parts=(part,), content=growth.base.content)
    _refuse_other_rows(build, own, growth.base.rows + own.rows, found.rows)
    return replace(found, parts=(*growth.parts, part), content=added_content(growth.base.content, own.content))


def _refuse_other_rows(build: Build, batch: StagedBatch, expected: int, found: int, other: str = "") -> None:
    if found != expected or other:
        raise VerifyFailed(
            f"{build}: {batch.partition} should have {expected} rows with those of the batch before, and its files "
            f"hold {found}{f', {other}' if other else ''}. {NOTHING_LOST} `varve doctor {build.dataset} --deep` says "
            f"what is wrong with them; `varve backfill {build.dataset}` reads all landing files again."
        )


def _take_over(files: AbstractFileSystem, build: Build, before: str, folder: str) -> None:
    """Have the data files of a batch folder in another one too."""
    data = [entry["name"] for entry in data_files(files, before)]
    if not data:
        raise MissingUpstream(
            f"{build.dataset}: {before} is gone, to which rows were to be added: somebody removed it. {NOTHING_LOST} "
            f"`varve backfill {build.dataset}` reads all files of those partitions again."
        )
    wanted = [name for name in data if not name.endswith(f"/{EMPTY_FILE}")]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda name: _have_too(files, name, folder), wanted))


def _have_too(files: AbstractFileSystem, name: str, folder: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    own = name.rsplit("/", 1)[-1]
    _, target = open_files(f"{folder}/{own}")
    if not isinstance(files, LocalFileSystem):
        files.copy(name, target)
        return
    try:
        os.link(name, target)
    except FileExistsError:
        # Never written into: it may be a link to a file of another batch.
        raise
    except OSError:
        # Another disk, a file system without links, or too many of them.
        shutil.copyfile(name, target)
    # What Hadoop's local file system compares a file with; without it, it does not compare.
    with contextlib.suppress(OSError):
        os.link(_checksum_of(name), _checksum_of(target))


def _checksum_of(name: str) -> str:
    folder, _, own = name.rpartition("/")
    return f"{folder}/.{own}.crc"
