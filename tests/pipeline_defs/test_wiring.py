"""The wiring of pipeline_defs/ and resources/ is what Dagster's runs use, with all that the library would give."""

from __future__ import annotations

import dagster as dg
import pytest

from pipeline_defs.definitions import defs, graph, loaded, project
from pipeline_defs.jobs import jobs
from pipeline_defs.schedules import schedules
from pipeline_defs.sensors import sensors
from resources.lake import lake_io_manager
from resources.landing import landing
from resources.warehouse import warehouse_io_manager
from varve.dagster.definitions import definitions

FROM_THE_LIBRARY = definitions(project)


def names(one: dg.Definitions, kind: str) -> set[str]:
    """The names of the definitions of one kind."""
    return {definition.name for definition in getattr(one.get_repository_def(), f"{kind}_defs")}


@pytest.mark.parametrize("kind", ["sensor", "schedule"])
def test_what_asks_for_runs_is_on_the_page_and_is_all_that_the_library_would_give(kind: str) -> None:
    written = {"sensor": sensors, "schedule": schedules}[kind](loaded)
    assert {definition.name for definition in written} == names(defs, kind) == names(FROM_THE_LIBRARY, kind)


def test_every_job_is_on_the_page() -> None:
    def own(one: dg.Definitions) -> set[str]:
        return {job.name for job in one.get_repository_def().get_all_jobs() if not job.name.startswith("__")}

    assert {job.name for job in jobs(loaded)} == own(defs) == own(FROM_THE_LIBRARY)


def test_assets_and_checks_are_those_of_the_library() -> None:
    ours, theirs = defs.resolve_asset_graph(), FROM_THE_LIBRARY.resolve_asset_graph()
    assert ours.get_all_asset_keys() == theirs.get_all_asset_keys()
    assert ours.asset_check_keys == theirs.asset_check_keys


def test_every_resource_that_a_run_needs_is_one_of_the_resources_package() -> None:
    assert defs.resources is not None
    assert defs.resources["landing"] is landing
    assert set(defs.resources) == set(FROM_THE_LIBRARY.resources or {})
    in_runs = defs.resolve_implicit_global_asset_job_def().resource_defs
    assert in_runs["lake_io_manager"] is lake_io_manager
    assert in_runs["warehouse_io_manager"] is warehouse_io_manager


@pytest.mark.parametrize("name", sorted(graph.datasets))
def test_each_dataset_is_written_by_the_io_manager_of_its_store(name: str) -> None:
    key = dg.AssetKey(name.split("."))
    node = defs.resolve_asset_graph().get(key)
    assert node.io_manager_key == f"{graph.datasets[name].store}_io_manager"
    if name in {"flights.weekly_delays", "flights.monthly_fleet"}:
        assert node.io_manager_key == "warehouse_io_manager"
