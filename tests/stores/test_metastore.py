"""Where a deployed metastore is told that a partition lies; what it answers is in tests/e2e/test_metastore.py."""

from __future__ import annotations

import datetime as dt

import pytest

from varve.model.batch import Batch, BatchId
from varve.stores.folders import metastore

PATH = "day=2013-01-05/at=a%3Ab"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("root", "present", "moved_to"),
    [
        ("/lake", f"file:/lake/t/{PATH}/batch_id=1", f"file:/lake/t/{PATH}/batch_id=2"),
        ("file:///my lake", f"file:/my lake/t/{PATH}/batch_id=1", f"file:/my lake/t/{PATH}/batch_id=2"),
        ("hdfs:///lake", f"hdfs://name:8020/lake/t/{PATH}/batch_id=1", f"hdfs://name:8020/lake/t/{PATH}/batch_id=2"),
        ("s3a://ours/lake", f"s3a://ours/lake/t/{PATH}/batch_id=1", f"s3a://ours/lake/t/{PATH}/batch_id=2"),
        # Of another deployment, which shares the metastore: there is no such batch.
        ("/lake", f"file:/other/t/{PATH}/batch_id=1", None),
        ("s3a://ours/lake", f"s3a://theirs/lake/t/{PATH}/batch_id=1", None),
        ("s3a://ours/lake", f"file:/lake/t/{PATH}/batch_id=1", None),
        # Of another partition, and no batch at all.
        ("/lake", "file:/lake/t/day=2013-01-06/at=a%3Ab/batch_id=1", None),
        ("/lake", f"file:/lake/t/{PATH}", None),
    ],
)
def test_a_partition_is_moved_within_its_own_lake_and_else_left_to_spark(
    root: str, present: str, moved_to: str | None
) -> None:
    batch = Batch(PATH, BatchId(2), f"{root}/t/{PATH}/batch_id=2", 1, 1, "", NOW, frozenset())
    assert metastore._location_of(present, batch) == moved_to
