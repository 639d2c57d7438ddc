"""Batches of partitions that grow: their folder has the data files of the batch before and those of the new rows.

The files of the batch before are not read: they are linked where the lake is a local folder, else copied as bytes. A
link is as good as a copy, because a file of a batch is never written again, and a sweep removes only names. When the
partition is complete, its rows are written into few files again (a fold). Why: docs/decisions/0013.

Not here: which landing files are new (sources/landing/growth.py), and writing (folders/write.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from varve.model.batch import Part
from varve.model.errors import NOTHING_LOST, MissingUpstream, VerifyFailed
from varve.services.files import open_files
from varve.stores.folders.file_calls import at_once
from varve.stores.folders.footers import data_files
from varve.stores.folders.hash_text import added_content, sums_of
from varve.stores.folders.write import EMPTY_FILE, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspec import AbstractFileSystem
    from pyspark.sql import DataFrame

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.stores.folders.layout import Layout

# A fold writes files of about so many bytes.
_BYTES_A_FILE = 128 << 20


def with_folded(build: Build, frame: DataFrame, scan: Callable[[Sequence[str]], DataFrame]) -> DataFrame:
    """The frame with the rows of the batches that the build folds, in few files; `scan` reads folders."""
    for growth in build.growth.values():
        if growth.fold and growth.base is not None:
            rows = scan([growth.base.location]).coalesce(max(1, -(-growth.base.size // _BYTES_A_FILE)))
            frame = rows.unionByName(frame)
    return frame


def with_base(layout: Layout, build: Build, staged: Sequence[StagedBatch]) -> list[StagedBatch]:
    """The staged batches together with the files, rows and hash that they keep of the batches before.

    Raises MissingUpstream where a batch before is gone, and VerifyFailed where its files have other rows than it had.
    """
    if not build.growth:
        return list(staged)
    new = {batch.partition: batch for batch in staged}
    added = [key for key, growth in build.growth.items() if growth.base is not None and not growth.fold]
    if added:
        files, _ = open_files(layout.root)

        def take(key: PartitionKey) -> None:
            base = build.growth[key].base
            assert base is not None
            _take_files(files, build, base.location, new[key].location)

        at_once(take, added)
    surveyed = {batch.partition: batch for batch in survey(layout, replace(build, partitions=tuple(added)))}
    return [_whole(build, batch, surveyed.get(batch.partition, batch)) for batch in staged]


def _whole(build: Build, new_rows: StagedBatch, surveyed: StagedBatch) -> StagedBatch:
    """A batch with all of its rows. `new_rows` is the staged batch of the new rows, `surveyed` its whole folder."""
    growth = build.growth.get(new_rows.partition)
    if growth is None:
        return new_rows
    part = Part(build.batch_id, new_rows.location, new_rows.rows, new_rows.size, growth.files)
    if growth.base is None:
        return replace(new_rows, parts=(part,))
    if growth.fold:
        before, after = growth.base.content, new_rows.content
        other = before is not None and after is not None and sums_of(before) != sums_of(after)
        _refuse_other_rows(build, new_rows, growth.base.rows, new_rows.rows, "of another hash" if other else "")
        return replace(new_rows, parts=(part,), content=growth.base.content)
    _refuse_other_rows(build, new_rows, growth.base.rows + new_rows.rows, surveyed.rows)
    return replace(surveyed, parts=(*growth.parts, part), content=added_content(growth.base.content, new_rows.content))


def _refuse_other_rows(build: Build, batch: StagedBatch, expected: int, rows: int, hash_problem: str = "") -> None:
    if rows != expected or hash_problem:
        raise VerifyFailed(
            f"{build}: {batch.partition} should have {expected} rows with those of the batch before, and its files "
            f"hold {rows}{f', {hash_problem}' if hash_problem else ''}. {NOTHING_LOST} "
            f"`varve doctor {build.dataset} --deep` says what is wrong with them; "
            f"`varve backfill start {build.dataset}` reads all landing files again."
        )


def _take_files(files: AbstractFileSystem, build: Build, source: str, folder: str) -> None:
    """Link or copy the data files of a batch folder (`source`) into another one."""
    data = [entry["name"] for entry in data_files(files, source)]
    if not data:
        raise MissingUpstream(
            f"{build.dataset}: {source} is gone, to which rows were to be added: somebody removed it. {NOTHING_LOST} "
            f"`varve backfill start {build.dataset}` reads all files of those partitions again."
        )
    names = [name for name in data if not name.endswith(f"/{EMPTY_FILE}")]
    at_once(lambda name: _link_or_copy(files, name, folder), names)


def _link_or_copy(files: AbstractFileSystem, name: str, folder: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    file_name = name.rsplit("/", 1)[-1]
    _, target = open_files(f"{folder}/{file_name}")
    if not isinstance(files, LocalFileSystem):
        files.copy(name, target)
        return
    try:
        os.link(name, target)
    except FileExistsError:
        # The file must not be written into: it may be a link to a file of another batch.
        raise
    except OSError:
        # The target is on another disk, or the file system has no links, or too many.
        shutil.copyfile(name, target)
    # Hadoop's local file system compares a file with this checksum, where there is one.
    with contextlib.suppress(OSError):
        os.link(_checksum_of(name), _checksum_of(target))


def _checksum_of(name: str) -> str:
    """The path of the checksum file that Hadoop writes beside a file."""
    folder, _, file_name = name.rpartition("/")
    return f"{folder}/.{file_name}.crc"
