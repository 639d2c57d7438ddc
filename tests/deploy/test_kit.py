"""The files of deploy/ name only what is there: sources, settings, commands, packages. No container is made here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.executor_python import needed_packages, requirements
from tests.deploy.images import COMPOSE, DEPLOY, IMAGES, Image, compose_values, image, in_order, interpolated, services
from tests.documents.pages import text_of
from tests.support.project import PROJECT, ROOT
from varve.project import DEPLOYMENT_VARIABLE, PROJECT_VARIABLE
from varve.services.settings import Settings

EXAMPLE = COMPOSE.with_name("example.env")
OUTSIDE = COMPOSE.with_name("outside.yaml")
SAID = dict(re.findall(r"^(\w+)=(.*)$", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE))
GIVEN = {
    **dict.fromkeys(SAID, "word"),
    "VARVE_SOURCE_URL": "postgresql://source.example/shop",
    "VARVE_ALERTS": '{"team": "json://alerts.example"}',
}
SETTINGS = {f"VARVE_{name.upper()}" for name in Settings.model_fields} | {PROJECT_VARIABLE, DEPLOYMENT_VARIABLE}
# Of the script that makes the databases; no process of Varve reads it.
OF_THE_DATABASE = {"VARVE_OWNER_PASSWORD"}
CONSTRAINTS = dict(
    line.strip().lower().split("==")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if "==" in line
)


def of(name: str) -> Image:
    return image(DEPLOY / "images" / f"{name}.Dockerfile")


def test_there_is_an_image_for_dagster_for_code_and_for_spark() -> None:
    assert [file.stem for file in IMAGES] == ["code", "dagster", "spark"]


@pytest.mark.parametrize("file", IMAGES, ids=lambda file: file.stem)
def test_every_image_is_of_two_stages_at_exact_versions_and_runs_as_a_user_without_rights(file: Path) -> None:
    stages = image(file).stages
    assert len(stages) >= 2
    for stage in stages:
        assert re.fullmatch(r"[\w-]+:\d+\.\d+\.\d+\S*", stage.image), f"{stage.image} has no exact version"
    final = stages[-1]
    assert final.user is not None
    user, group = final.user.split(":")
    assert int(user) == int(group) >= 10_000, "Kubernetes checks `runAsNonRoot` by the number"
    assert f"--uid {user}" in " ".join(final.commands)
    assert not [command for command in final.commands if "pip install" in command], "builders stay behind"
    assert final.command


@pytest.mark.parametrize("file", IMAGES, ids=lambda file: file.stem)
def test_every_source_of_an_image_is_there_and_is_let_into_the_build(file: Path) -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    sources = [
        source for stage in image(file).stages for copied in stage.copied if copied.stage is None
        for source in copied.sources
    ]  # fmt: skip
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == name or source.startswith(f"{name}/") for name in let_in), f".dockerignore bars {source}"


@pytest.mark.parametrize("file", IMAGES, ids=lambda file: file.stem)
def test_what_pip_installs_into_an_image_is_held_to_the_tested_versions(file: Path) -> None:
    building = [stage for stage in image(file).stages if any("pip install" in command for command in stage.commands)]
    for stage in building:
        assert stage.environment["PIP_CONSTRAINT"] == "/build/constraints.txt"
        assert any("constraints.txt" in copied.sources for copied in stage.copied)


def test_the_versions_beside_the_constraints_are_exact_and_fit_dagster() -> None:
    lines = (DEPLOY / "images" / "requirements-kubernetes.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert pinned.keys().isdisjoint(CONSTRAINTS)
    # The libraries of Dagster are released together.
    assert pinned["dagster-k8s"] == CONSTRAINTS["dagster-postgres"]


def test_the_packages_of_executors_are_those_of_varve_at_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {
        (one := Requirement(text)).name: one.specifier
        for text in [*project["dependencies"], *project["optional-dependencies"]["s3"]]
    }
    assert [each.name for each in requirements()] == sorted(each.name for each in requirements())
    for each in requirements():
        # Time zones: where Varve itself runs, another package brings them.
        if each.name != "tzdata":
            assert each.specifier == ours[each.name], f"{each.name}: pyproject.toml asks for {ours[each.name]}"
    unpinned = [
        name for name, found in needed_packages(requirements()).items()
        if CONSTRAINTS.get(name, CONSTRAINTS.get(name.replace("-", "_"))) != found.version
    ]  # fmt: skip
    assert not unpinned


def test_the_hadoop_of_the_image_is_sparks_own() -> None:
    import pyspark

    text = of("spark").file.read_text(encoding="utf-8")
    (version,) = re.findall(r"^ARG HADOOP_AWS=(\S+)", text, re.MULTILINE)
    (jars,) = [folder for folder in pyspark.__path__ if folder]
    (jar,) = (ROOT / jars / "jars").glob("hadoop-client-api-*.jar")
    assert jar.stem == f"hadoop-client-api-{version}"


def test_the_images_have_the_version_of_the_library() -> None:
    for service in services(GIVEN).values():
        if service.image is not None:
            assert service.values["image"] == f"varve-{service.image.file.stem}:{metadata.version('varve')}"


def test_every_image_of_others_has_a_version() -> None:
    for service in services(GIVEN).values():
        if service.image is None:
            name, _, tag = service.values["image"].partition(":")
            assert re.search(r"\d+\.\d+|\d{4}-\d{2}-\d{2}", tag), f"{name} has no version"


def test_every_variable_that_the_kit_gives_varve_is_a_setting() -> None:
    for file in [file for file in DEPLOY.rglob("*") if file.is_file()]:
        named = set(re.findall(r"\bVARVE_[A-Z_]+[A-Z]\b", file.read_text(encoding="utf-8"))) - OF_THE_DATABASE
        assert named <= SETTINGS, f"{file.relative_to(ROOT)}: {sorted(named - SETTINGS)}"
    for service in services(GIVEN).values():
        values = {name: value for name, value in service.environment.items() if name in SETTINGS}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in values.items():
                patch.setenv(name, value)
            assert Settings().model_dump(include={"postgres_url"}) is not None


def test_the_example_of_passwords_names_every_variable_of_the_compose_file_and_no_other() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == set(GIVEN)
    with pytest.raises(KeyError, match=r"write it in \.env"):
        interpolated("${POSTGRES_PASSWORD:?write it in .env}", {})
    # Nobody begins with a password that stands in a repository.
    assert not re.findall(r"^\w*(?:PASSWORD|USER)=(\S+)", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_example_has_the_amounts_of_before_and_they_fit_into_each_other() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    amounts = {name: value for name, value in SAID.items() if value}
    for name, value in amounts.items():
        assert f"${{{name}:-{value}}}" in text, name
    heap, executors, container = (
        int(amounts[name].removesuffix("g")) for name in ("EXECUTOR_MEMORY", "WORKER_MEMORY", "WORKER_MEMORY_LIMIT")
    )
    assert heap <= executors <= container - 2
    given = {**GIVEN, "EXECUTOR_MEMORY": "5g", "WORKER_MEMORY": "6g", "WORKER_CORES": "3"}
    assert "spark.executor.memory=5g" in services(given)["spark-connect"].command
    worker = services(given)["spark-worker"]
    assert (worker.environment["SPARK_WORKER_MEMORY"], worker.environment["SPARK_WORKER_CORES"]) == ("6g", "3")
    assert worker.values["deploy"]["resources"]["limits"] == {
        "cpus": "${WORKER_CPU_LIMIT:-4}", "memory": "${WORKER_MEMORY_LIMIT:-6g}",
    }  # fmt: skip


def test_a_source_and_channels_reach_the_code_location_alone_and_it_has_a_way_to_them() -> None:
    names = {"VARVE_SOURCE_URL", "VARVE_ALERTS"}
    for name, service in services(GIVEN).items():
        given = {each: value for each, value in service.environment.items() if each in names}
        assert given == ({each: GIVEN[each] for each in names} if name == "code" else {}), name
    # Who writes neither has neither.
    unset = services({name: "" if name in names else value for name, value in GIVEN.items()})["code"].environment
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setenv(name, unset[name])
        assert (Settings().source_url, Settings().alerts) == (None, {})
    added = yaml.safe_load(OUTSIDE.read_text(encoding="utf-8"))["services"]
    networks = compose_values()["networks"]
    assert {name: list(service) for name, service in added.items()} == {"code": ["networks"]}
    assert [name for name in added["code"]["networks"] if not networks[name].get("internal")] == ["published"]


def test_every_service_waits_for_what_it_needs_and_says_whether_it_is_well() -> None:
    all_services = services(GIVEN)
    order = [service.name for service in in_order(all_services)]
    assert order.index("bucket") < order.index("metastore") < order.index("spark-connect") < order.index("code")
    assert order.index("postgres") < order.index("roles") < order.index("code")
    for service in all_services.values():
        runs_once = service.values["restart"] == "no"
        assert bool(service.health) != runs_once, service.name
        for other, condition in service.depends.items():
            once = all_services[other].values["restart"] == "no"
            assert condition == ("service_completed_successfully" if once else "service_healthy"), other
        if not runs_once:
            assert service.values["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, service.name


def test_only_the_ui_is_published_and_only_to_this_host() -> None:
    values = compose_values()
    assert values["networks"]["stack"]["internal"]
    published = {name: each["ports"] for name, each in values["services"].items() if "ports" in each}
    assert published == {"webserver": ["127.0.0.1:3000:3000"]}
    for name, service in values["services"].items():
        assert "stack" in service["networks"], name
        if "build" in service:
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_volume_and_mounted_folder_is_there() -> None:
    values = compose_values()
    for service in values["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            there = (COMPOSE.parent / source).is_dir() if source.startswith(".") else source in values["volumes"]
            assert there, volume


@pytest.mark.needs_seconds
def test_every_program_that_a_service_runs_is_one_of_its_image() -> None:
    scripts = {entry.name for entry in metadata.entry_points(group="console_scripts")}
    for service in services(GIVEN).values():
        if service.image is None:
            continue
        for words in (service.command, service.health):
            if not words:
                continue
            program = words[0]
            spark = program.startswith("/opt/spark/bin/") and service.image.file.stem == "spark"
            assert spark or program in scripts | {"python"}, f"{service.name}: {program}"
            if program == "python":
                compile(words[2], service.name, "exec")
    for words in (["varve", "warehouse", "roles"], ["dagster", "api", "grpc"], ["dagster-daemon", "liveness-check"]):
        program = Path(sys.executable).parent / words[0]
        subprocess.run([program, *words[1:], "--help"], cwd=ROOT, check=True, capture_output=True, timeout=120)


def test_the_code_location_is_the_project_of_this_repository() -> None:
    command = of("code").final.command
    assert command[command.index("-m") + 1] == PROJECT.definitions
    workspace = yaml.safe_load((DEPLOY / "images/dagster/workspace.yaml").read_text(encoding="utf-8"))
    (entry,) = workspace["load_from"]
    assert entry["grpc_server"]["host"] in services(GIVEN)
    assert str(entry["grpc_server"]["port"]) == command[command.index("-p") + 1]
    local = yaml.safe_load((ROOT / "workspace.yaml").read_text(encoding="utf-8"))["load_from"][0]["python_module"]
    assert entry["grpc_server"]["location_name"] == local["location_name"]


def test_the_page_names_every_file_of_the_kit() -> None:
    page = text_of("docs/deploy.md")
    for file in [*IMAGES, COMPOSE, EXAMPLE, OUTSIDE]:
        assert f"deploy/{file.relative_to(DEPLOY)}" in page, file
