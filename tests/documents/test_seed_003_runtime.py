"""`docs/examples/seeds/003/runtime`: the proposal's example of partitions that are known at run time, as it runs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._cli.asset import asset_cli

from tests.dagster.test_without_partitions import Shop
from tests.support.project import ROOT
from varve.dagster.instance import open_instance
from varve.dagster.partitions.definitions import partitions_def

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The example as a project, with a database and a set of its own."""
    db = f"r{tmp_path.name.encode().hex()[-6:]}{abs(hash(tmp_path)) % 100_000}"
    assets = tmp_path / f"{db}_assets"
    shutil.copytree(ROOT / "docs" / "examples" / "seeds" / "003" / "runtime", assets)
    code = assets / "energy.py"
    text = code.read_text(encoding="utf-8").replace('"aip76.', f'"{db}.')
    code.write_text(text.replace('"active_customers"', f'"{db}.active_customers"'), encoding="utf-8")
    (assets / "__init__.py").write_text("")
    # The sensors of a whole project: one of them is for files that arrive.
    (assets / "meters.sql").write_text(f"CREATE DATASET {db}.meters (kwh DOUBLE)\nEXTERNAL;\n")
    (tmp_path / "varve.toml").write_text(f'assets = "{assets.name}"\n')
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shop(tmp_path, db, workbench)


def test_the_run_without_a_key_finds_the_keys_and_each_is_run_once_downstream(shop: Shop) -> None:
    assert shop.materialise("found_customers").success
    assert sorted(shop.drive()) == ["energy_consumption_model ann ... bob", "energy_prediction ann ... bob"]
    assert shop.lake("energy_prediction") == [(pytest.approx(33.0), "ann"), (pytest.approx(33.0), "bob")]

    (shop.root / f"{shop.db}_assets" / "customers.txt").write_text("ann\nbob\ncarol\n")
    assert shop.materialise("found_customers").success
    # As in the proposal, a run trains the models of all customers; a prediction follows its model.
    assert sorted(shop.drive()) == ["energy_consumption_model ann ... carol", "energy_prediction ann ... carol"]
    assert [customer for _, customer in shop.lake("energy_prediction")] == ["ann", "bob", "carol"]
    assert shop.drive() == []


@pytest.mark.filterwarnings("ignore::dagster.SupersessionWarning")
def test_a_partition_of_a_set_that_is_not_filled_is_refused_with_what_to_run(shop: Shop) -> None:
    loaded = shop.loaded
    (shop.root / "defs_of_test.py").write_text(
        "from varve.dagster.definitions import build_defs\n"
        "from varve.dagster.discovery import load_project\n"
        "from varve.project import Project\n"
        f"project = load_project(Project.find({str(shop.root)!r}))\n"
        "defs = build_defs(project.datasets, project=project.project)\n"
    )
    place = ["-m", "defs_of_test", "-d", str(shop.root)]
    words = ["materialize", *place, "--select", f"{shop.db}/energy_prediction", "--partition", "zoe"]
    done = CliRunner().invoke(asset_cli, words, prog_name="dagster asset")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), done.exception
    set_name = f"{shop.db}.active_customers"
    text = " ".join(done.output.replace("│", " ").split())
    assert f"the set {set_name} has no key zoe, as it is empty" in text
    assert f"`varve keys add {set_name} zoe`" in text
    with open_instance(loaded.project.settings) as instance:
        instance.add_dynamic_partitions(f"varve/{set_name}", ["ann"])
        definition = loaded.graph.datasets[f"{shop.db}.energy_prediction"].partitioning
        with dg.partition_loading_context(dynamic_partitions_store=instance) as context:
            of_set = partitions_def(definition)
            assert of_set is not None
            of_set.validate_partition_key("ann", context)
            # The UI and the daemon get Dagster's own error, which they know.
            with pytest.raises(dg.DagsterUnknownPartitionError):
                of_set.validate_partition_key("zoe", context)
