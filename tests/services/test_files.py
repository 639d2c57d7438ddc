"""Which file systems hold a lake, and how they rename."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.model.errors import VarveError
from varve.services.files import open_files, renames_cheaply

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_others_write_is_seen_as_it_is_now(tmp_path: Path) -> None:
    files, place = open_files(f"file://{tmp_path}")
    assert place == str(tmp_path)
    assert files.ls(place) == []
    (tmp_path / "batch_id=1").mkdir()
    assert files.exists(f"{place}/batch_id=1")
    assert [entry.rsplit("/", 1)[-1] for entry in files.ls(place, detail=False)] == ["batch_id=1"]


@pytest.mark.parametrize("root", ["/lake", "file:///lake", "hdfs://name/lake", "abfss://box@account/lake"])
def test_disks_and_hdfs_rename_in_one_step(root: str) -> None:
    assert renames_cheaply(root)


@pytest.mark.parametrize("root", ["s3a://bucket/lake", "gs://bucket/lake", "oss://bucket/lake"])
def test_object_stores_rename_by_copying(root: str) -> None:
    assert not renames_cheaply(root)


def test_a_store_that_python_does_not_speak_to_is_told() -> None:
    with pytest.raises(VarveError, match=r"nowhere://lake cannot be reached from Python.*Nothing was read or changed"):
        open_files("nowhere://lake")
