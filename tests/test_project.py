"""`Project`: found upward, named, deployed, overridden; two in one process; and what is wrong with one, in one line."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

import varve
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph
from varve.dagster.assets.python_files import package_of
from varve.dagster.discovery import discover, load_project
from varve.model.errors import VarveError
from varve.project import NoProject, Project
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark import checkpointed, open_session
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the variables that name a project or its state."""
    for name in ("VARVE_PROJECT", "VARVE_DEPLOYMENT", "VARVE_HOME", "VARVE_UI_PORT"):
        monkeypatch.delenv(name, raising=False)


def declared(root: Path, text: str = "", *, file: str = "pyproject.toml") -> Path:
    """A folder with a declaration of a project and an empty folder of datasets."""
    root.mkdir(parents=True, exist_ok=True)
    head = "" if file == "varve.toml" else "[tool.varve]\n"
    (root / file).write_text(head + textwrap.dedent(text), encoding="utf-8")
    (root / "assets").mkdir(exist_ok=True)
    return root


def test_it_is_found_from_every_folder_and_file_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = declared(tmp_path / "shop")
    deep = root / "assets" / "orders" / "daily"
    deep.mkdir(parents=True)
    (deep / "orders.sql").touch()
    for start in (root, root / "assets", deep, deep / "orders.sql"):
        assert Project.find(start).root == root
    monkeypatch.chdir(deep)
    found = Project.find()
    assert (found.root, found.assets, found.file) == (root, root / "assets", root / "pyproject.toml")
    assert (found.definitions, found.commands, found.deployment) == ("pipeline_defs.definitions", (), None)


def test_a_varve_toml_declares_one_too(tmp_path: Path) -> None:
    root = declared(tmp_path, 'assets = "data"\ncommands = ["a.b"]\n[settings]\nui_port = 4000\n', file="varve.toml")
    (root / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    found = Project.find(root)
    assert (found.assets, found.commands, found.file) == (root / "data", ("a.b",), root / "varve.toml")
    assert found.settings.ui_port == 4000


def test_a_variable_names_it_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = declared(tmp_path / "shop")
    monkeypatch.chdir("/")
    monkeypatch.setenv("VARVE_PROJECT", str(root / "assets"))
    assert Project.find().root == root
    other = declared(tmp_path / "other")
    assert Project.find(other).root == other


def test_what_one_names_is_what_another_process_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = declared(tmp_path, "[tool.varve.deployments.prod]\nui_port = 4001\n")
    found = Project.find(root, deployment="prod")
    assert found.environment == {"VARVE_PROJECT": str(root), "VARVE_DEPLOYMENT": "prod"}
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    assert Project.find() == found
    assert Project.find().settings.ui_port == 4001


def test_deployments_come_before_the_settings_and_the_environment_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = declared(
        tmp_path,
        """\
        deployment = "local"
        [tool.varve.settings]
        ui_port = 4000
        attempts = 7
        home = "state"
        [tool.varve.deployments.local]
        [tool.varve.deployments.prod]
        ui_port = 4001
        lake_root = "s3://bucket/lake"
        """,
    )
    local, prod = Project.find(root), Project.find(root, deployment="prod")
    assert (local.deployment, local.settings.ui_port, local.settings.attempts) == ("local", 4000, 7)
    assert (prod.deployment, prod.settings.ui_port, prod.settings.attempts) == ("prod", 4001, 7)
    assert local != prod
    # Folders are relative to the file, URIs are left alone.
    assert local.settings.home_dir == root / "state"
    assert (local.settings.lake, prod.settings.lake) == (str(root / "state" / "lake"), "s3://bucket/lake")
    monkeypatch.setenv("VARVE_UI_PORT", "4002")
    monkeypatch.setenv("VARVE_DEPLOYMENT", "prod")
    assert Project.find(root).deployment == "prod"
    assert Project.find(root).settings.ui_port == 4002


def test_a_uri_with_one_slash_is_no_folder_beside_the_file(tmp_path: Path) -> None:
    settings = '[tool.varve.settings]\nlake_root = "{root}"\nlanding_root = "{root}"'
    local = Project.find(declared(tmp_path / "local", settings.format(root="file:/data/lake"))).settings
    assert (local.lake, local.landing) == ("file:///data/lake",) * 2
    remote = Project.find(declared(tmp_path / "remote", settings.format(root="hdfs:/user/x")))
    with pytest.raises(VarveError, match=r"VARVE_LAKE_ROOT is neither a folder nor a URI: .* Write hdfs://host/path"):
        assert remote.settings


def test_its_state_lies_beside_it_unless_it_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = declared(tmp_path / "shop")
    monkeypatch.chdir("/")
    assert Project.find(root).settings.home_dir == root / ".varve"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("assets = ", r"pyproject\.toml cannot be read: Invalid value .* Correct it\."),
        ('asets = "assets"', r"\[tool\.varve\] has no 'asets'\. Did you mean assets\? It may have assets, "),
        ("assets = 3", r"\[tool\.varve\] assets = 3: write assets = \"FOLDER\"\."),
        ('commands = "a.b"', r"commands = 'a\.b': write commands = \[\"PACKAGE\.MODULE\"\]\."),
        ('deployment = "prod"', r"has no deployment 'prod'\. It has none\. Write \[tool\.varve\.deployments\.prod\]\."),
        (
            'deployment = "pord"\n[tool.varve.deployments.prod]',
            r"has no deployment 'pord'\. Did you mean prod\? It has prod\.",
        ),
        ("[tool.varve.deployments]\nprod = 3", r"deployments\.prod = 3: write a table of settings\."),
    ],
)
def test_what_is_wrong_with_a_declaration_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(NoProject, match=message) as caught:
        Project.find(declared(tmp_path, text))
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nvarve = true\n")
    with pytest.raises(NoProject, match=r"tool\.varve is True; write it as a table"):
        Project.find(tmp_path)


def test_settings_that_are_none_are_refused_when_they_are_asked_for(tmp_path: Path) -> None:
    unknown = Project.find(declared(tmp_path / "one", "[tool.varve.settings]\nui_prot = 4000"))
    with pytest.raises(NoProject, match=r"there is no setting 'ui_prot'\. Did you mean ui_port\? docs/reference\.md"):
        assert unknown.settings
    wrong = Project.find(declared(tmp_path / "two", "[tool.varve.settings]\nattempts = 0"))
    with pytest.raises(VarveError, match=r"VARVE_ATTEMPTS=0: Input should be greater than or equal to 1"):
        assert wrong.settings


def test_without_one_it_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoProject, match=r"varve init NAME.*--project FOLDER") as caught:
        Project.find(tmp_path)
    assert caught.value.is_absent
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(NoProject, match="does not exist") as caught:
        Project.find(tmp_path / "nowhere")
    assert not caught.value.is_absent


def test_one_in_another_is_refused_and_both_are_named(tmp_path: Path) -> None:
    outer, inner = declared(tmp_path), declared(tmp_path / "inner")
    message = re.escape(f"two projects, one in the other: {inner}/pyproject.toml and {outer}/pyproject.toml.")
    with pytest.raises(NoProject, match=message):
        Project.find(inner)
    assert Project.find(outer).root == outer


def test_without_its_folder_of_datasets_it_cannot_be_loaded(tmp_path: Path) -> None:
    project = Project.find(declared(tmp_path, 'assets = "data"'))
    with pytest.raises(NoProject, match=r'has its datasets in .*/data, which is no folder\. .*assets = "FOLDER"'):
        load_project(project)


def test_a_project_without_datasets_loads(tmp_path: Path) -> None:
    project = Project.find(declared(tmp_path))
    assert load_project(project).datasets == ()
    dg.Definitions.validate_loadable(varve.definitions(project))


def test_its_definitions_merge_with_others_that_have_an_executor(tmp_path: Path) -> None:
    project = Project.find(declared(tmp_path))
    own = dg.Definitions(executor=dg.multiprocess_executor)
    merged = dg.Definitions.merge(varve.definitions(project, in_process=False), own)
    dg.Definitions.validate_loadable(merged)
    assert merged.executor is dg.multiprocess_executor
    assert varve.definitions(project).executor is dg.in_process_executor


# --- modules of one name


def test_a_module_of_another_place_is_no_module_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    root = declared(tmp_path, 'definitions = "tests.support.project"')
    (root / "tests" / "support").mkdir(parents=True)
    (root / "tests" / "support" / "project.py").write_text("defs = None\n")
    project = Project.find(root)
    with pytest.raises(NoProject, match=r"and Python finds .* under that name") as caught:
        project.module(project.definitions)
    assert str(root / "tests" / "support" / "project.py") in str(caught.value)
    assert str(Path(__file__).parent / "support" / "project.py") in str(caught.value)


def shop(root: Path, price: int, *, folder: str = "assets", package: bool = True) -> Project:
    """A project of one Python dataset, of the same name as in every other; `price` is what its rows say."""
    assets = root / folder
    assets.mkdir(parents=True)
    (root / "varve.toml").write_text(f'assets = "{folder}"\n[settings]\nhome = "state"\n')
    if package:
        (assets / "__init__.py").touch()
    (assets / "prices.py").write_text(f"PRICE = {price}\n")
    (assets / "orders.py").write_text(
        textwrap.dedent(
            """\
            import varve
            from .prices import PRICE

            DAY = varve.TimeDimension.of("day", "@daily", "2026-11-01", "2026-12-01")
            ORDERS = varve.Dataset(
                name="shop.orders",
                comment="One row per order.",
                partitioning=varve.Partitioning((DAY,)),
                schema=varve.Schema((varve.Column("price", varve.ColumnType.BIGINT, "euros"),)),
                store=varve.StoreKind.LAKE,
            )

            @varve.asset(ORDERS)
            def orders(context):
                spark = context.resources.spark.spark_session
                return spark.sql(f"select CAST({PRICE} AS BIGINT) AS price, DATE '{context.partition_key}' AS day")
            """
        )
    )
    return Project.find(root)


@pytest.mark.parametrize("package", [True, False])
def test_two_projects_may_both_call_their_folder_assets(tmp_path: Path, *, package: bool) -> None:
    one, two = (shop(tmp_path / name, price, package=package) for name, price in (("one", 1), ("two", 2)))
    for _ in range(2):
        for project in (one, two):
            (found,) = discover(project)
            assert found.dataset.name == "shop.orders"
            # The very module of the project, though both are called assets.orders.
            module = sys.modules[found.compute.__module__]
            assert Path(module.__file__).parent == project.assets
            assert (1 if project is one else 2) == module.PRICE


def test_a_file_that_would_import_the_other_projects_assets_is_refused(tmp_path: Path) -> None:
    assert discover(shop(tmp_path / "one", 1))
    two = shop(tmp_path / "two", 2)
    (two.assets / "orders.py").write_text("from assets.prices import PRICE\n")
    with pytest.raises(NoProject, match=r"orders\.py:1 imports assets, which in this process is .*another project"):
        discover(two)
    # What is no Python imports nothing; it is told as a broken dataset.
    (two.assets / "orders.py").write_text("this is no Python\n")
    assert [broken.file for broken in load_project(two).graph.broken] == ["assets/orders.py"]


def test_a_package_that_python_finds_first_is_named_with_the_folder(tmp_path: Path) -> None:
    project = shop(tmp_path / "shop", 1, folder="yaml")
    with pytest.raises(
        NoProject, match=r"imported as the package yaml, and Python finds .*/site-packages/yaml"
    ) as caught:
        load_project(project)
    assert str(project.assets) in str(caught.value)


def test_a_folder_that_is_no_name_of_a_package_is_refused_only_for_its_python_files(tmp_path: Path) -> None:
    project = shop(tmp_path / "shop", 1, folder="my-assets")
    with pytest.raises(NoProject, match=r"'my-assets' is no name that Python can import\. Rename the folder"):
        load_project(project)
    for file in project.assets.glob("*.py"):
        file.unlink()
    assert discover(project) == []


def test_a_folder_within_a_package_is_imported_by_its_whole_name(tmp_path: Path) -> None:
    source = tmp_path / "src" / "shop_of_the_test"
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    project = shop(tmp_path, 1, folder="src/shop_of_the_test/datasets")
    assert package_of(project.assets) == "shop_of_the_test.datasets"
    (found,) = discover(project)
    assert found.compute.__module__ == "shop_of_the_test.datasets.orders"


def test_a_dataset_that_two_python_files_declare_is_refused(tmp_path: Path) -> None:
    project = shop(tmp_path, 1)
    (project.assets / "again.py").write_text((project.assets / "orders.py").read_text())
    with pytest.raises(VarveError, match=r"shop\.orders is declared twice in the Python files of .*/assets"):
        load_project(project)


# --- two homes in one process


@pytest.fixture
def short_path(home: Path) -> Iterator[Path]:
    """A folder for homes: a server's socket lies in them, and its path must be short."""
    folder = home / "two"
    folder.mkdir()
    yield folder
    for name in ("one", "two"):
        state = folder / name / "state"
        SparkServer(Settings(home=state)).stop()
        PostgresServer(state).stop()


def endpoint(session: Any) -> str:
    """The server that a session of Spark Connect speaks to."""
    return str(session.client._builder.endpoint)


@pytest.mark.spark
def test_two_projects_with_different_homes_work_in_one_process(
    short_path: Path, settings: Settings, spark: SparkSession
) -> None:
    """Each with its own PostgreSQL; on Spark Connect the first has its own Spark too, and the second the suite's."""
    projects = {"one": shop(short_path / "one", 1), "two": shop(short_path / "two", 2)}
    connect_mode = settings.spark_master is None
    if connect_mode:
        url, token = SparkServer(settings).ensure_up()
        for project, setting in zip(
            projects.values(), ('spark_driver_memory = "1g"', f'spark_remote = "{url}/;token={token}"'), strict=True
        ):
            with (project.root / "varve.toml").open("a") as file:
                file.write(f"{setting}\n")
        projects = {name: Project.find(project.root) for name, project in projects.items()}
    for project in projects.values():
        done = dg.materialize(
            [asset.asset for asset in load_project(project).datasets],
            partition_key="2026-11-02",
            resources=varve.definitions(project).resources,
        )
        assert done.success
    for price, project in enumerate(projects.values(), 1):
        home = project.root / "state"
        assert project.settings.home_dir == home
        with connect(project.settings) as connection:
            (batch,) = Catalog(connection).current("shop.orders").values()
        assert batch.location.startswith(str(home / "lake"))
        assert list((home / "lake").rglob("*.parquet"))
        with varve.open(project) as data:
            assert data.datasets == ["shop.orders"]
            table = data.table("shop.orders")
            assert [row["price"] for row in table.collect()] == [price]
            if connect_mode:
                same = endpoint(table.sparkSession) == endpoint(spark)
                assert same is (project is projects["two"])
        # What a server keeps is asked for there, whichever session was opened first in this process.
        session = open_session(project.settings)
        assert [row.id for row in checkpointed(session.range(2).where("id > 0")).collect()] == [1]
    # Frames can be joined, whichever project was at work in between: each server has one session in a process.
    for project_settings in (settings, *(project.settings for project in projects.values())):
        assert open_session(project_settings) is open_session(project_settings)
    assert open_session(settings) is spark


def test_a_command_over_a_project_without_datasets_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "varve.toml").touch()
    (tmp_path / "assets").mkdir()
    monkeypatch.setenv("VARVE_PROJECT", str(tmp_path))
    with pytest.raises(NoProject, match=rf"{tmp_path}/assets declares no dataset: .* Write one: docs/sql\.md"):
        chosen_graph()
