"""A loss of power: what PostgreSQL will not forget is on disk before PostgreSQL is told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sales import DETROIT, PARIS, ZURICH, sales_dataset
from varve.model.dataset import StoreKind
from varve.services import files as services_files
from varve.services.files import make_durable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.workbench import Workbench


@dataclass
class Disk:
    """The files and folders of which somebody has waited that they are on disk, each as it was then."""

    look: Callable[[], object] = lambda: None
    synced: dict[Path, object] = field(default_factory=dict)
    seen: dict[Path, object] = field(default_factory=dict)

    def note(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self.synced[path] = state(path)
        self.seen[path] = self.look()

    def has(self, path: Path) -> bool:
        return self.synced.get(path.resolve()) == state(path)


def state(path: Path) -> object:
    """What a loss of power would take from a file or a folder."""
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else path.read_bytes()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    noted, really = Disk(), os.fsync

    def fsync(handle: int) -> None:
        really(handle)
        noted.note(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return noted


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_batch_is_on_disk_before_it_can_be_published(workbench: Workbench, disk: Disk, partitions: int) -> None:
    dataset, catalog = sales_dataset(StoreKind.LAKE), workbench.catalog()
    keys = [PARIS, DETROIT, ZURICH][:partitions]
    build = workbench.begin(catalog, dataset, keys)
    store = workbench.store(dataset, catalog)
    staged = store.stage(build, workbench.frame(dataset, [(key, "pen", 1) for key in keys]))
    for batch in staged:
        folder = Path(batch.location)
        assert list(folder.glob("*.parquet"))
        for path in (*folder.rglob("*"), folder, folder.parent, folder.parent.parent):
            assert disk.has(path), path
    catalog.staged(build, staged)
    # What others see of the catalog at each moment at which something is written to disk.
    disk.look = lambda: sorted(workbench.current(dataset))
    store.publish(build, staged)
    metadata = list(Path(staged[0].location.partition("/day=")[0]).glob("_iceberg/*"))
    assert len([path for path in metadata if path.name.endswith(".metadata.json")]) == 1
    for path in metadata:
        assert disk.has(path), path
        assert disk.seen[path.resolve()] == [], "it is written before the publish is committed"
    assert disk.has(metadata[0].parent)
    assert len(workbench.current(dataset)) == partitions
    catalog.connection.execute("select pg_advisory_unlock_all()")
    catalog.connection.close()


def test_many_files_are_written_out_at_once_where_the_system_can(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(70):
        folder = tmp_path / "table" / f"day={number}" / "batch"
        folder.mkdir(parents=True)
        (folder / "rows").write_text("1", encoding="utf-8")
    folders = [str(folder) for folder in tmp_path.rglob("batch")]
    make_durable(str(tmp_path), folders)
    assert not disk.synced
    monkeypatch.setattr(services_files.sys, "platform", "an older system")
    make_durable(str(tmp_path), folders)
    assert all(disk.has(path) for path in (tmp_path, *tmp_path.rglob("*")))


def test_an_object_store_keeps_what_it_has_acknowledged(disk: Disk) -> None:
    make_durable("memory://lake", ["memory://lake/table/day=1/batch"])
    assert not disk.synced
