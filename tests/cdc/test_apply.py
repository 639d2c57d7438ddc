"""Applying to partitions: only those whose rows differ are published, all of them at once with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cdc.lab import Lab

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def published(lab: Lab) -> set[str]:
    """The partitions that are published when what was done since is captured and applied."""
    assert lab.capture() is not None
    done = lab.apply()
    assert done is not None
    assert lab.in_lake() == lab.in_source()
    return {batch.partition.path for batch in done.published}


def test_only_partitions_whose_rows_differ_are_published(lab: Lab) -> None:
    lab.sql("insert into {t} (w, id, note) select 1, i, 'old' from generate_series(0, 6) i")
    lab.bootstrap()
    assert lab.apply() is not None
    # 37: of a row that moves to another partition, the old and the new one.
    lab.sql("update {t} set id = 10 where id = 1")
    assert published(lab) == {"part=1", "part=2"}
    # 38: what changes nothing publishes nothing, and is not looked at again.
    lab.sql("update {t} set note = note")
    assert published(lab) == set()
    assert lab.apply() is None
    # A partition that loses its last rows becomes empty, not stale.
    lab.sql("delete from {t} where mod(id, 4) = 3")
    assert published(lab) == {"part=3"}
    with lab.catalog() as catalog:
        assert catalog.current(lab.captured.dataset.name)["part=3"].rows == 0
    # A new snapshot of the same rows publishes nothing either.
    lab.bootstrap(again=True)
    done = lab.apply()
    assert done is not None
    assert done.published == ()
