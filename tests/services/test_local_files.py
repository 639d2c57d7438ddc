"""Permissions on the local file system: what Spark writes gets them from our class, without a process each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import jar
from tests.support.environment import clean_environment
from varve.services.jvm.class_path import JAR, add_our_classes, is_replaced, of_our_classes

# Writes three partitions into a folder whose files belong to its group, and says which permissions all have.
WRITER = """
import json, os, sys
from pathlib import Path
from varve.services.settings import Settings
from varve.services.spark import open_session

os.umask(0o027)
session = open_session(Settings(), json.loads(sys.argv[2]))
frame = session.range(9).selectExpr("id", "id % 3 AS part").coalesce(1)
frame.write.partitionBy("part").parquet(sys.argv[1])
assert session.read.parquet(sys.argv[1]).count() == 9
paths = [Path(sys.argv[1]), *Path(sys.argv[1]).rglob("*")]
print(json.dumps(sorted({oct(path.stat().st_mode & 0o7777) for path in paths})))
"""

# Somebody else's session comes first, then ours, in the same JVM; and ours again where that one has ended.
SECOND = """
from pyspark.sql import SparkSession
from varve.services.jvm.class_path import METASTORE
from varve.services.settings import Settings
from varve.services.spark import open_session

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session = open_session(Settings())
assert session.conf.get(f"spark.sql.catalog.{METASTORE}", None) is None
session.range(3).write.parquet(Settings().lake)
session.stop()
session = open_session(Settings())
assert session.conf.get(f"spark.sql.catalog.{METASTORE}", None) is None
session.range(3).write.mode("overwrite").parquet(Settings().lake)
print(session.read.parquet(Settings().lake).count())
"""


ALONE = """
from varve.services.jvm.class_path import METASTORE
from varve.services.settings import Settings
from varve.services.spark import open_session

session = open_session(Settings())
assert session.conf.get(f"spark.sql.catalog.{METASTORE}", None) is None
session.sql("SHOW DATABASES").collect()
session.range(3).write.parquet(Settings().lake)
print(session.read.parquet(Settings().lake).count())
"""


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """A folder for the PATH, whose `chmod` notes in `called` that it was called, and does its work."""
    folder = tmp_path / "programs"
    folder.mkdir()
    real = shutil.which("chmod")
    script = folder / "chmod"
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/called\nexec {real} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


def classic(home: Path) -> dict[str, str]:
    """The environment of a process with a JVM of its own."""
    given = {"VARVE_HOME": str(home), "VARVE_SPARK_MASTER": "local[1]", "VARVE_SPARK_DRIVER_MEMORY": "1g"}
    return {**clean_environment(), **given}


def said(environment: dict[str, str], code: str, *arguments: str) -> str:
    """The last line of what a process with this code writes."""
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


def written(noted: Path, home: Path, conf: dict[str, str]) -> tuple[list[str], list[str]]:
    """The permissions of all that was written, and the calls of `chmod` for it."""
    parent = home / "group"
    parent.mkdir()
    parent.chmod(0o2750)
    environment = {**classic(home), "PATH": f"{noted}{os.pathsep}{os.environ['PATH']}"}
    output = said(environment, WRITER, str(parent / "rows"), json.dumps(conf))
    called = noted / "called"
    calls = called.read_text(encoding="utf-8").splitlines() if called.exists() else []
    return json.loads(output), [call for call in calls if "/group/rows" in call]


@pytest.mark.needs_seconds
@pytest.mark.parametrize("whose", ["ours", "Hadoop's"])
def test_a_write_starts_no_process_for_permissions_and_gives_those_that_hadoop_gives(
    noted: Path, tmp_path: Path, whose: str
) -> None:
    """The umask of Spark is 022, whatever that of the process is; the bit of the group stays with new folders."""
    conf = {} if whose == "ours" else {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
    permissions, calls = written(noted, tmp_path, conf)
    assert permissions == ["0o2755", "0o644"]
    # Otherwise this test would not notice that Spark has come to do it in another way.
    assert bool(calls) == (whose != "ours")


@pytest.mark.needs_seconds
def test_a_jvm_that_somebody_else_has_started_in_this_process_is_used_as_it_is(tmp_path: Path) -> None:
    assert said(classic(tmp_path), SECOND) == "3"


# The class path that a `spark-env.sh` names stands in the place of that of the environment.
OTHER_CLASS_PATH = "export SPARK_DIST_CLASSPATH=/opt/hadoop/lib/*\n"


@pytest.mark.needs_seconds
@pytest.mark.parametrize("started_by", ["spark-submit", "spark-env.sh"])
def test_a_jvm_that_does_not_find_our_classes_is_used_as_it_is(tmp_path: Path, started_by: str) -> None:
    environment = classic(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(ALONE, encoding="utf-8")
    command = [sys.executable, str(script)]
    if started_by == "spark-submit":
        # The JVM is there before Python.
        submit = Path(find_spec("pyspark").submodule_search_locations[0]) / "bin" / "spark-submit"  # type: ignore[union-attr, index]
        command = [str(submit), "--master", "local[1]", "--conf", "spark.ui.enabled=false", str(script)]
        environment |= {"PYSPARK_PYTHON": sys.executable}
    else:
        environment["SPARK_CONF_DIR"] = str(tmp_path)
        (tmp_path / "spark-env.sh").write_text(OTHER_CLASS_PATH, encoding="utf-8")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout.split()[-1:] == ["3"], done.stderr[-3000:]


def test_a_server_has_our_classes_where_its_start_script_leaves_the_class_path_alone(tmp_path: Path) -> None:
    assert not is_replaced(tmp_path)
    file = tmp_path / "spark-env.sh"
    file.write_text("SPARK_WORKER_CORES=2\n", encoding="utf-8")
    assert not is_replaced(tmp_path)
    file.write_text(OTHER_CLASS_PATH, encoding="utf-8")
    assert is_replaced(tmp_path)


def test_the_jar_is_made_of_its_source() -> None:
    with zipfile.ZipFile(JAR) as archive:
        assert archive.read(jar.MANIFEST).decode() == jar.manifest(), "run `make jar`"
        classes = {name for name in archive.namelist() if name.endswith(".class")}
    assert {name.partition("$")[0].removesuffix(".class") for name in classes} == {
        path.relative_to(jar.SOURCE).with_suffix("").as_posix() for path in jar.SOURCE.rglob("*.java")
    }


def test_class_paths_and_file_systems_of_others_stay() -> None:
    environment = {"SPARK_DIST_CLASSPATH": "/opt/theirs/*"}
    add_our_classes(environment)
    add_our_classes(environment)
    assert environment == {"SPARK_DIST_CLASSPATH": f"/opt/theirs/*{os.pathsep}{JAR}"}
    theirs = {"spark.hadoop.fs.file.impl": "theirs.Files"}
    assert theirs.items() <= of_our_classes(theirs).items()


def test_clusters_have_file_systems_of_their_own() -> None:
    from varve.services.spark import _with_our_classes

    for master in ("local-cluster[1,1,1024]", "spark://somewhere:7077", "yarn"):
        assert _with_our_classes({}, master) == {}
