"""What executors of a cluster cannot do is said before a run begins its work, and by `varve doctor`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.executor_python import executor_python
from tests.e2e.project import ROOT, Project
from tests.support.environment import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

DAY = "2026-11-23"
FILES = {
    "varve.toml": 'definitions = "defs"\n',
    "defs.py": "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n",
    "assets/__init__.py": "",
    "assets/sales.sql": """CREATE DATASET till.sales (product STRING, cents BIGINT)
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-23', END '2026-11-24')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing');
""",
}


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """A project of one landing dataset, whose file of a day has arrived."""
    root = Path(tempfile.mkdtemp(prefix="varve-executors-"))
    root.chmod(0o755)
    for name, text in FILES.items():
        (file := root / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "dagster.yaml", root / "project")
    try:
        with Project.of_its_own("executors") as own:
            environment = {name: value for name, value in own.environment.items() if name != KEPT}
            found = replace(own, root=root / "project", environment=environment)
            (landing := Path(found.settings.landing) / "till" / "sales").mkdir(parents=True)
            (landing / f"{DAY}.csv").write_text("product,cents\ntea,5\nrum,7\n", encoding="utf-8")
            yield found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def on_a_cluster(project: Project, python: Path) -> Project:
    """The project on two executors with this Python."""
    conf = {"spark.pyspark.python": str(python), "spark.executor.memory": "512m"}
    return project.having(spark_master="local-cluster[2,1,512]", spark_conf=json.dumps(conf))


def doctors(project: Project) -> list[tuple[str, str]]:
    """What `varve doctor` finds: problem and remedy."""
    done = project.run_afresh("-c", "from varve.cli.app import main; main()", "doctor", "--json")
    text = done.output[done.output.index("{\n") :]
    findings = json.JSONDecoder().raw_decode(text)[0]["findings"]
    return [(finding["problem"], finding["remedy"]) for finding in findings]


def test_executors_with_all_that_is_needed_are_passed_over(project: Project, tmp_path: Path) -> None:
    cluster = on_a_cluster(project, executor_python(tmp_path / "python", packages=("pyarrow",)))
    assert doctors(cluster) == []
    assert list(Path(project.settings.lake).glob("_seen*")) == []


def test_a_python_without_pyarrow_is_named(project: Project, tmp_path: Path) -> None:
    ((problem, remedy),) = doctors(on_a_cluster(project, executor_python(tmp_path / "python", packages=())))
    assert problem == "the Python of executors has no pyarrow"
    assert "requirements-executor.txt" in remedy


def test_another_python_is_named_with_its_version(project: Project, tmp_path: Path) -> None:
    python = executor_python(tmp_path / "python", packages=("pyarrow",))
    (site,) = (tmp_path / "python").glob("lib/python*/site-packages")
    # An interpreter of another version is not at hand: this one says of itself that it is one.
    (site / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'SPARK_ENV_LOADED' in os.environ or 'PYTHON_WORKER_FACTORY_SECRET' in os.environ:\n"
        "    class Older(tuple):\n"
        "        major, minor, micro, releaselevel, serial = 3, 9, 0, 'final', 0\n"
        "    sys.version_info = Older((3, 9, 0, 'final', 0))\n"
    )
    ((problem, _),) = doctors(on_a_cluster(project, python))
    assert problem.startswith("executors have another Python (3.9) than this process")


def test_a_lake_that_executors_do_not_see_stops_the_run_before_it_begins(project: Project, tmp_path: Path) -> None:
    python = executor_python(tmp_path / "python", packages=("pyarrow",))
    lake = Path(project.settings.lake)
    lake.mkdir(parents=True, exist_ok=True)
    blind = tmp_path / "blind"
    # As on a host where nothing is mounted there.
    blind.write_text(
        f'#!/bin/sh\nexec unshare --mount sh -c \'mount -t tmpfs none {lake} && exec "$@"\' sh {python} "$@"\n'
    )
    blind.chmod(0o755)
    can_mount = subprocess.run([blind, "-c", "pass"], check=False, capture_output=True, env=dict(os.environ))
    assert can_mount.returncode == 0, f"this test mounts a file system: {can_mount.stderr.decode()}"
    cluster = on_a_cluster(project, blind)
    ((problem, remedy),) = doctors(cluster)
    assert f"do not see the lake's folder {lake}" in problem
    assert "VARVE_LAKE_ROOT" in remedy
    refused = cluster.run_afresh("-m", "dagster", "asset", "materialize", "-m", "defs", "--select", "till/sales",
                                 "--partition", DAY)  # fmt: skip
    assert refused.code != 0
    assert "This Spark cannot be used: executors on " in refused.output
    assert list(lake.glob("**/*.parquet")) == []
    # Mended, the same command computes it; the cluster is asked again, and then not any more.
    mended = on_a_cluster(project, python)
    for _ in range(2):
        done = mended.run_afresh("-m", "dagster", "asset", "materialize", "-m", "defs", "--select", "till/sales",
                                 "--partition", DAY)  # fmt: skip
        assert done.code == 0, done.output
    assert len(list((project.settings.home_dir / "executors").iterdir())) == 1
