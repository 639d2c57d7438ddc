"""The capture of a dropped dataset: nothing is left at the source, whenever the drop was killed; or it is refused."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.cdc.lab import Killed, Lab
from tests.support.dagster_home import make_dagster_home
from tests.support.project import commands_on
from tests.support.sales import sales_dataset
from varve.catalog.history.drops import Drops
from varve.catalog.history.history import History
from varve.cdc.capture.positions import Positions
from varve.cdc.ending import ending_capture
from varve.cli.batches.doctor import doctor
from varve.cli.batches.drop import drop
from varve.model.dataset import StoreKind
from varve.model.errors import AlreadyBuilding, ServiceUnavailable, VarveError
from varve.planning.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from varve.catalog.catalog import Catalog

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _nobody_declares_it(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dagster_home(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    other = sales_dataset(StoreKind.LAKE)
    commands_on(Graph({other.name: other}, {other.name: ()}, {}), monkeypatch)
    monkeypatch.setenv("VARVE_SOURCE_URL", lab.url)


@pytest.fixture
def name(lab: Lab) -> str:
    """The name of a dataset whose table was captured once, and applied."""
    lab.sql("insert into {t} (w, id, note) select 1, n, 'note ' || n from generate_series(1, 20) n")
    lab.bootstrap()
    lab.apply()
    return lab.captured.dataset.name


def at_the_source(lab: Lab) -> list[str]:
    """The slots and publications at the source that are of the dataset."""
    query = """
        select 'slot ' || slot_name from pg_replication_slots where slot_name = %s
        union all select 'publication ' || pubname from pg_publication where pubname = %s order by 1
    """
    with lab.source() as source:
        return [found for (found,) in source.execute(query, (lab.captured.slot, lab.captured.slot))]


def test_a_drop_ends_the_capture_and_leaves_nothing_at_the_source(lab: Lab, name: str, catalog: Catalog) -> None:
    assert len(at_the_source(lab)) == 2
    looked = drop(name, dry_run=True)
    assert (looked.slot, looked.done) == (lab.captured.slot, False)
    assert len(at_the_source(lab)) == 2
    drop(name)
    assert at_the_source(lab) == []
    assert Positions(catalog.connection).find(name) is None
    assert lab.log().batches(1) == []
    assert catalog.current(name) == {}
    assert [finding for finding in doctor(None).findings if finding.dataset == name] == []
    # Declared again it begins with a snapshot of its own.
    lab.bootstrap()
    lab.apply()
    assert Positions(catalog.connection).of(name).generation == 1
    assert lab.in_lake() == lab.in_source()


@pytest.mark.parametrize("step", ["stop capture", "drop slot", "remove events", "forget position", "drop", "commit"])
def test_a_drop_that_is_killed_while_it_ends_the_capture_is_finished_by_the_next(
    lab: Lab, name: str, catalog: Catalog, step: str
) -> None:
    def die(taken: str) -> None:
        if taken == step:
            raise Killed

    before = catalog.current(name)
    with pytest.raises(Killed):
        drop(name, step=die)
    # It serves its last exact state, until all of it goes at once.
    assert catalog.current(name) == before
    if step in {"drop slot", "remove events", "forget position"}:
        (remedy,) = [each.remedy for each in doctor(name).findings if "capture" in each.problem]
        assert remedy == f"it is being dropped: `varve drop {name}` finishes that"
    drop(name, purge=True)
    assert at_the_source(lab) == []
    assert Positions(catalog.connection).find(name) is None
    assert name not in History(catalog.connection).stores()
    assert Drops(catalog.connection).of(name) == []


def test_a_source_that_cannot_be_asked_is_told_before_anything_is_changed(
    lab: Lab, name: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARVE_SOURCE_URL", "postgresql://127.0.0.1:1/nowhere?connect_timeout=2")
    with pytest.raises(ServiceUnavailable, match=f"(?s)is captured from .* cannot be reached: .*{lab.captured.slot}"):
        drop(name)
    assert Positions(catalog.connection).of(name).state == "running"
    assert len(catalog.current(name)) > 0
    drop(name, source_is_gone=True)
    assert catalog.current(name) == {}
    assert len(at_the_source(lab)) == 2
    with lab.source() as source:
        source.execute(f"drop publication {lab.captured.slot}".encode())


def test_another_server_keeps_its_slot(lab: Lab, name: str, catalog: Catalog) -> None:
    catalog.connection.execute("update varve.cdc_position set system_identifier = '1' where dataset = %s", (name,))
    with pytest.raises(VarveError, match="captured from another server"):
        drop(name)
    assert len(at_the_source(lab)) == 2
    assert len(catalog.current(name)) > 0


def test_a_capture_that_runs_is_not_ended(lab: Lab, name: str, catalog: Catalog) -> None:
    with lab.catalog() as other:
        Positions(other.connection).lock(name)
        with pytest.raises(AlreadyBuilding, match="another process captures"):
            drop(name)
        Positions(other.connection).unlock(name)
    assert len(at_the_source(lab)) == 2


def test_a_capture_of_which_nothing_was_applied_yet_is_found_and_ended(lab: Lab, catalog: Catalog) -> None:
    lab.sql("insert into {t} (w, id) values (1, 1)")
    lab.bootstrap()
    name = lab.captured.dataset.name
    (finding,) = [each for each in doctor(None).findings if each.dataset == name]
    assert "whose source keeps its log for us, and no code declares it" in finding.problem
    assert finding.remedy == f"Declare it again, or end it: `varve drop {name}`."
    drop(name)
    assert at_the_source(lab) == []
    assert [each for each in doctor(None).findings if each.dataset == name] == []


def test_a_dataset_that_was_never_captured_has_nothing_to_end(lab: Lab, catalog: Catalog) -> None:
    with ending_capture(catalog.connection, lab.settings, f"t{uuid.uuid4().hex[:8]}.plain") as capture:
        assert capture is None
    with pytest.raises(VarveError, match=r"nothing of .* was ever built"):
        drop("nobody.knows")
