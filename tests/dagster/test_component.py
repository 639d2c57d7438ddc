"""`varve.VarveProject` in a `dg` project, and `varve.definitions` merged into a project that has its own: both with the
real commands.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.environment import clean_environment
from tests.support.prepared import run_prepared

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.needs_seconds

ORDERS = """\
CREATE DATASET shop.orders (
  product STRING COMMENT 'what was sold',
  price DOUBLE COMMENT 'euros'
)
  COMMENT 'One row per order.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-12-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
EXTERNAL;
"""
COUNTRIES = """\
import varve

COUNTRY = varve.StaticDimension("country", ("FR", "DE"))
COUNTRIES = varve.Dataset(
    name="shop.countries",
    comment="One row per country.",
    partitioning=varve.Partitioning((COUNTRY,)),
    schema=varve.Schema((varve.Column("name", varve.ColumnType.STRING),)),
    store=varve.StoreKind.WAREHOUSE,
)


@varve.asset(COUNTRIES)
def countries(context):
    return None
"""


def command(name: str, *arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment that runs the tests, as a person types it in a folder."""
    program = Path(sys.executable).with_name(name)
    if not program.is_file():
        pytest.fail(f"there is no {program}: pip install --constraint constraints.txt --editable '.[dev]'")
    own = clean_environment()
    environment = {
        **own, "PATH": f"{program.parent}:{own['PATH']}", "DAGSTER_HOME": str(folder), "COLUMNS": "200", **variables,
    }  # fmt: skip
    words = arguments if name == "python" else (program, *arguments)
    return run_prepared(*words, cwd=folder, env=environment)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def dg_project(tmp_path: Path) -> Path:
    """A project as `dg` lays it out, with an asset and a schedule of its own."""
    files = {
        "pyproject.toml": """\
            [project]
            name = "shop"
            version = "1"
            [tool.dg]
            directory_type = "project"
            [tool.dg.project]
            root_module = "shop"
            """,
        "src/shop/__init__.py": "",
        "src/shop/defs/__init__.py": "",
        "src/shop/defs/plain.py": """\
            import dagster as dg

            @dg.asset
            def plain() -> int:
                return 1

            nightly = dg.ScheduleDefinition(name="nightly", target=plain, cron_schedule="@daily")
            """,
        "src/shop/definitions.py": """\
            from pathlib import Path

            from dagster import definitions, load_from_defs_folder

            @definitions
            def defs():
                return load_from_defs_folder(path_within_project=Path(__file__).parent)
            """,
    }
    root = tmp_path / "shop"
    write(root, files)
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text), encoding="utf-8")


def dg(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return command("dg", *arguments, folder=folder, PYTHONPATH=str(folder / "src"))


def listed(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeeded(dg("list", "defs", "--json", folder=folder)))
    return found


def names(found: dict[str, Any], kind: str, name: str = "name") -> set[str]:
    return {each[name] for each in found[kind]}


def test_dg_lists_the_component(dg_project: Path) -> None:
    said = succeeded(dg("list", "components", "--json", folder=dg_project))
    told = "the package has no such entry point: install it again, pip install --editable '.[dev]'"
    assert "varve.VarveProject" in {each["key"] for each in json.loads(said)["items"]}, told


def test_scaffolding_begins_a_project_whose_datasets_stand_beside_the_others(dg_project: Path) -> None:
    succeeded(dg("scaffold", "defs", "varve.VarveProject", "datasets", folder=dg_project))
    assert (dg_project / "varve.toml").read_text().splitlines()[-1] == 'assets = "assets"'
    write(dg_project, {"assets/orders.sql": ORDERS, "assets/countries.py": COUNTRIES})
    found = listed(dg_project)
    assert names(found, "assets", "asset_key") == {"plain", "shop/orders", "shop/countries", "varve/report"}
    assert {"nightly", "report"} <= names(found, "schedules")
    assert {"arrivals", "downstream", "retirement"} <= names(found, "sensors")
    said = dg("check", "defs", folder=dg_project)
    assert "All definitions loaded successfully" in succeeded(said) + said.stderr


def test_scaffolding_leaves_a_project_that_is_there_as_it_is(dg_project: Path) -> None:
    write(dg_project, {"data/orders.sql": ORDERS})
    declared = (dg_project / "pyproject.toml").read_text() + '[tool.varve]\nassets = "data"\n'
    (dg_project / "pyproject.toml").write_text(declared)
    succeeded(dg("scaffold", "defs", "varve.VarveProject", "datasets", folder=dg_project))
    assert (dg_project / "pyproject.toml").read_text() == declared
    assert not (dg_project / "varve.toml").exists()
    assert not (dg_project / "assets").exists()
    assert (dg_project / "src" / "shop" / "defs" / "datasets" / "defs.yaml").is_file()
    assert "shop/orders" in names(listed(dg_project), "assets", "asset_key")


def test_its_attributes_choose_the_project_the_deployment_and_running_sensors(dg_project: Path) -> None:
    elsewhere = dg_project.parent / "elsewhere"
    write(
        elsewhere,
        {
            "varve.toml": "[deployments.prod]\nsensor_interval_seconds = 77\n",
            "assets/orders.sql": ORDERS,
        },
    )
    component = {
        "src/shop/defs/datasets/defs.yaml": """\
            type: varve.VarveProject
            attributes:
              project: ../../../../../elsewhere
              deployment: prod
              sensors_on: true
            """
    }
    write(dg_project, component)
    script = """\
        from shop.definitions import defs
        sensors = {each.name: each for each in defs().get_repository_def().sensor_defs}
        arrivals = sensors["arrivals"]
        print(arrivals.minimum_interval_seconds, arrivals.default_status.value)
        print(defs().resources["spark"].deployment)
        print({each.default_status.value for each in sensors.values()})
        """
    done = command("python", "-c", textwrap.dedent(script), folder=dg_project, PYTHONPATH=str(dg_project / "src"))
    assert succeeded(done).split() == ["77", "RUNNING", "prod", "{'RUNNING'}"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("{project: nowhere}", "nowhere does not exist, so that no project is there. Name a project's folder."),
        ("{deployment: prod}", "has no deployment 'prod'. It has none. Write [tool.varve.deployments.prod]."),
        ("{sensors: true}", "sensors"),
    ],
)
def test_what_is_wrong_with_it_is_said_when_dg_loads_it(dg_project: Path, attributes: str, message: str) -> None:
    write(dg_project, {"varve.toml": "", "assets/orders.sql": ORDERS})
    text = f"type: varve.VarveProject\nattributes: {attributes}\n"
    write(dg_project, {"src/shop/defs/datasets/defs.yaml": text})
    done = dg("check", "defs", folder=dg_project)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


@pytest.fixture
def own_project(tmp_path: Path) -> Path:
    """A Dagster project that has all that one has, its own `resources.py` and `assets/`, and Varve's datasets."""
    files = {
        "varve.toml": 'assets = "datasets"\n',
        "datasets/__init__.py": "",
        "datasets/orders.sql": ORDERS,
        "datasets/countries.py": COUNTRIES,
        "resources.py": """\
            import dagster as dg

            class Mailer(dg.ConfigurableResource):
                sender: str
            """,
        "assets/__init__.py": """\
            import dagster as dg

            from resources import Mailer

            # It reads a dataset of Varve as any other asset.
            @dg.asset(deps=[dg.AssetKey(["shop", "countries"])])
            def mails(mailer: Mailer) -> str:
                return mailer.sender

            @dg.asset
            def greeting(mailer: Mailer) -> str:
                return mailer.sender

            @dg.asset_check(asset=mails)
            def has_a_sender() -> dg.AssetCheckResult:
                return dg.AssetCheckResult(passed=True)
            """,
        "pipeline.py": """\
            from pathlib import Path

            import dagster as dg

            import varve
            from assets import greeting, has_a_sender, mails
            from resources import Mailer

            mailing = dg.define_asset_job("mailing", [mails])

            @dg.sensor(job=mailing)
            def on_request():
                return dg.SkipReason("nobody asks")

            defs = dg.Definitions.merge(
                varve.definitions(varve.Project.find(Path(__file__))),
                dg.Definitions(
                    assets=[greeting, mails],
                    asset_checks=[has_a_sender],
                    jobs=[mailing],
                    schedules=[dg.ScheduleDefinition(job=mailing, cron_schedule="@daily")],
                    sensors=[on_request],
                    resources={"mailer": Mailer(sender="shop@example.com")},
                ),
            )
            """,
    }
    write(tmp_path, files)
    return tmp_path


def test_a_project_with_all_of_dagster_validates_with_varves_datasets_in_it(own_project: Path) -> None:
    done = command("dagster", "definitions", "validate", "-m", "pipeline", folder=own_project)
    succeeded(done)
    assert "Validation successful for code location pipeline" in done.stdout + done.stderr
    script = """\
        from pipeline import defs
        found = defs.get_repository_def()
        print(*sorted(key.to_user_string() for key in found.asset_graph.get_all_asset_keys()))
        print(*sorted(each.name for each in found.sensor_defs))
        print(*sorted(each.name for each in found.schedule_defs))
        print(*sorted(name for name in found.job_names if not name.startswith("__")))
        print(*sorted(key.to_user_string() for key in found.asset_graph.asset_check_keys))
        """
    done = command("python", "-c", textwrap.dedent(script), folder=own_project)
    assets, sensors, schedules, jobs, checks = succeeded(done).splitlines()
    assert assets == "greeting mails shop/countries shop/orders varve/report"
    assert {"on_request", "arrivals", "downstream", "retirement"} <= set(sensors.split())
    assert {"mailing_schedule", "report"} == set(schedules.split())
    assert {"mailing", "retire"} <= set(jobs.split())
    assert "mails:has_a_sender" in checks


def test_an_asset_that_reads_no_dataset_runs_without_any_server_of_varve(own_project: Path) -> None:
    done = command("dagster", "asset", "materialize", "-m", "pipeline", "--select", "greeting", folder=own_project)
    succeeded(done)
    assert not (own_project / ".varve").exists()
