"""SPARK: programs that spark-submit runs, and every way in which a program can fail."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.dagster.test_sql_assets import HEAD, materialise, rows
from varve.dagster.assets.sql_assets import sql_assets
from varve.services.jvm.java import java_home
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.stores.folders import clean
from varve.stores.folders.layout import Layout

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.services.settings import Settings

DOCS = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
SOLD = [("x", 1, "2022-03-01"), ("y", 2, "2022-03-01"), ("x", 3, "2022-03-02"), ("x", 5, "2022-03-04")]
SALES = "AS SELECT product, revenue FROM VALUES {} AS v(product, revenue, on_day) WHERE on_day = today".format(
    ", ".join(f"('{product}', {revenue}, '{day}')" for product, revenue, day in SOLD)
)
SCORES = "SPARK '{program}' {options}\nUSING sales AS (SELECT * FROM {db}.sales WHERE sales.day <= today)"


def project(db: str, program: Path | str, options: str = "", columns: str = "product STRING, score DOUBLE",
            body: str = SCORES) -> list[DatasetAsset]:  # fmt: skip
    sales = HEAD.format(db=db, name="sales", columns="product STRING, revenue INT") + SALES
    scores = HEAD.format(db=db, name="scores", columns=columns) + body.format(program=program, options=options, db=db)
    return sql_assets(compiled([SourceFile("sales.sql", sales), SourceFile("scores.sql", scores)], {}))


def failure_text(assets: list[DatasetAsset], db: str, first: str, last: str) -> str:
    """Return the message of a run that fails, on one line."""
    failed = materialise(assets, f"{db}.scores", first, last)
    assert not failed.success
    data = failed.failure_data_for_node(f"{db}__scores")
    assert data is not None
    assert data.user_failure_data is not None
    return " ".join(str(data.user_failure_data.description).split())


def left(settings: Settings, db: str) -> list[Path]:
    """Return the private folders that are left."""
    return list((Path(settings.lake) / db / "scores").glob(".*"))


@pytest.fixture
def db() -> str:
    return f"p{uuid.uuid4().hex[:8]}"


@pytest.mark.spark
def test_the_program_of_the_docs_runs_once_for_all_scopes(workbench: Workbench, db: str, tmp_path: Path) -> None:
    header, program = re.findall(
        r"runs these two blocks -->\n```sql\n(.*?)```\n\n```python\n(.*?)```", DOCS, re.DOTALL
    )[0]
    path = tmp_path / "score.py"
    path.write_text(program, encoding="utf-8")
    scores = header.replace("shop.", f"{db}.").replace("jobs/score.py", str(path))
    scores = scores.replace("START '2022-03-01'", "START '2022-03-01', END '2022-03-05'")
    sales = HEAD.format(db=db, name="sales", columns="product STRING, revenue DOUBLE") + SALES
    assets = sql_assets(compiled([SourceFile("sales.sql", sales), SourceFile("scores.sql", scores)], {}))
    assert materialise(assets, f"{db}.sales", "2022-03-01", "2022-03-04").success
    assert materialise(assets, f"{db}.scores", "2022-03-01", "2022-03-04").success
    assert rows(workbench, assets, f"{db}.scores") == [
        ("x", 2.0, "2022-03-01"), ("x", 8.0, "2022-03-02"), ("x", 8.0, "2022-03-03"), ("x", 18.0, "2022-03-04"),
        ("y", 4.0, "2022-03-01"), ("y", 4.0, "2022-03-02"), ("y", 4.0, "2022-03-03"), ("y", 4.0, "2022-03-04"),
    ]  # fmt: skip
    assert left(workbench.settings, db) == []


MAIN = """
object Main {
  def main(args: Array[String]): Unit = {
    val spark = org.apache.spark.sql.SparkSession.builder().getOrCreate()
    val sales = spark.read.parquet(args(0) + "/inputs/sales")
    sales.groupBy("for_day").count().withColumnRenamed("for_day", "day").withColumnRenamed("count", "score")
      .write.partitionBy("day").parquet(args(0) + "/output")
  }
}
"""


@pytest.mark.spark
def test_a_jar_is_a_program_and_folders_of_partitions_are_not_guessed_at(
    workbench: Workbench, db: str, tmp_path: Path
) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (tmp_path / "Main.scala").write_text(MAIN, encoding="utf-8")
    java = java_home(workbench.settings.home_dir) / "bin" / "java"
    compiler = [java, "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp", "-d", tmp_path, tmp_path / "Main.scala"]
    subprocess.run(compiler, check=True, timeout=200)
    with zipfile.ZipFile(tmp_path / "score.jar", "w") as jar:
        for file in tmp_path.glob("*.class"):
            jar.write(file, file.name)
    assets = project(db, tmp_path / "score.jar", "OPTIONS (class = 'Main', driver_memory = '1g')", "score BIGINT")
    assert materialise(assets, f"{db}.sales", "2022-03-01", "2022-03-04").success
    # Spark would read a folder day=2022-03-02 as a DATE, and the column is declared as a text.
    assert materialise(assets, f"{db}.scores", "2022-03-02", "2022-03-04").success
    assert {(3, "2022-03-02"), (3, "2022-03-03"), (4, "2022-03-04")} <= set(rows(workbench, assets, f"{db}.scores"))


WRITES = "import os, sys, pyarrow as pa, pyarrow.parquet as pq\nout = sys.argv[1] + '/output'\n"
TABLE = "pa.table({'product': ['x'], 'score': [1.0], 'day': ['2022-03-01']})"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys\nprint('no rows today')\nsys.exit(3)", "no rows today"),
        ("pass", "ended well, but wrote nothing to"),
        (WRITES + "os.mkdir(out)\nopen(out + '/x.csv', 'w').write('a,b')", "what is no parquet"),
        (WRITES + f"pq.write_table({TABLE}.drop(['score']).append_column('scores', pa.array([1])), out)",
         "Missing: score DOUBLE. Not declared: scores bigint."),
        (WRITES + f"os.mkdir(out)\npq.write_table({TABLE}, out + '/a')\npq.write_table({TABLE}.drop(['day']), out + "
         "'/b')", "files with unlike columns"),
        (WRITES + f"pq.write_table(pa.concat_tables([{TABLE}, {TABLE.replace('-01', '-02')}]), out)",
         "1 of 2 rows lie outside the partitions of this run"),
    ],
    ids=["fails", "writes nothing", "writes no parquet", "other columns", "unlike files", "other partitions"],
)  # fmt: skip
def test_a_program_that_is_no_good_publishes_nothing_and_leaves_nothing(
    workbench: Workbench, db: str, tmp_path: Path, program: str, expected: str
) -> None:
    (tmp_path / "bad.py").write_text(program, encoding="utf-8")
    assets = project(db, tmp_path / "bad.py", body="SPARK '{program}'")
    message = failure_text(assets, db, "2022-03-01", "2022-03-01")
    assert expected in message
    assert f"{db}.scores" in message
    assert "Nothing was published; the current batch is unchanged." in message
    assert rows(workbench, assets, f"{db}.scores") == []
    assert left(workbench.settings, db) == []


@pytest.mark.spark
def test_no_rows_by_partitions_are_a_table_without_rows(workbench: Workbench, db: str, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text(f"{WRITES}os.mkdir(out)\nopen(out + '/_SUCCESS', 'w')", encoding="utf-8")
    assets = project(db, tmp_path / "empty.py", body="SPARK '{program}'")
    assert materialise(assets, f"{db}.scores", "2022-03-01", "2022-03-02").success
    (scores,) = [asset.dataset for asset in assets if asset.dataset.table == "scores"]
    current = workbench.current(scores)
    assert {path: batch.rows for path, batch in current.items()} == {"day=2022-03-01": 0, "day=2022-03-02": 0}


@pytest.mark.spark
def test_what_a_program_leaves_in_the_background_does_not_hold_the_run(
    workbench: Workbench, db: str, tmp_path: Path
) -> None:
    program = (
        "import subprocess\nopen(sys.argv[0] + '.pid', 'w').write(str(subprocess.Popen(['sleep', '999']).pid))\n"
        "import shutil\nshutil.copy(sys.argv[1] + '/task.json', sys.argv[0] + '.json')\n"
    )
    path = tmp_path / "it's.py"
    path.write_text(f"{WRITES}{program}pq.write_table({TABLE}, out)", encoding="utf-8")
    options = r"""OPTIONS (args = '--name "O\'Brien & sons" $HOME')"""
    assets = project(db, str(path).replace("'", r"\'"), options, body="SPARK '{program}' {options}")
    assert materialise(assets, f"{db}.scores", "2022-03-01", "2022-03-01").success
    assert rows(workbench, assets, f"{db}.scores") == [("x", 1.0, "2022-03-01")]
    pid = int(Path(f"{path}.pid").read_text(encoding="utf-8"))
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8")
    assert json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))["scopes"] == [
        {
            "partition": {"day": "2022-03-01"},
            "variables": {"t": "2022-03-01T00:00:00Z", "t_end": "2022-03-02T00:00:00Z", "today": "2022-03-01"},
        }
    ]


def test_what_a_killed_run_leaves_is_found_by_the_sweep(settings: Settings, db: str) -> None:
    folder = Path(settings.lake) / db / "scores" / ".spark-staging-program-1795210813484"
    (folder / "inputs" / "sales").mkdir(parents=True)
    (folder / "task.json").write_text("{}", encoding="utf-8")
    layout = Layout(settings.lake)
    (staging_unit,) = [unit for unit in clean.units(layout) if unit.dataset == f"{db}.scores"]
    assert (staging_unit.location, staging_unit.size) == (str(folder), 2)
    clean.remove(layout, [staging_unit.location])
    assert not folder.exists()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("SPARK 'jobs/nothing.py'", "scores.sql:6:7: there is no program jobs/nothing.py"),
        ("SPARK '{here}/scroe.py'", "Did you mean"),
        ("SPARK 'models.score:run'", "'models.score:run' is no program; write SPARK 'jobs/score.py', or a .jar."),
        ("SPARK '{here}/broken.py'", "broken.py is no Python, line 1"),
        ("SPARK '{here}/score.py' OPTIONS (class = 'Main')", "class belongs to a .jar"),
        ("SPARK '{here}/score.py' OPTIONS (mastre = 'yarn')", "SPARK has no option mastre"),
        ("SPARK '{here}/score.py' OPTIONS (mastre = 'yarn')", "Did you mean master?"),
        ("SPARK '{here}/score.py' OPTIONS (conf.master = 'yarn')", "conf.master is no setting of Spark"),
        ("SPARK '{here}/score.py' OPTIONS (args = '--name \"open')", "no arguments of a command: No closing quotation"),
        ("SPARK '{here}/score.py' OPTIONS (queue = '')", "queue is empty"),
        ("SPARK '{here}/broken.jar' OPTIONS (class = 'Main')", "broken.jar is no .jar"),
        ("SPARK '{here}/empty.jar'", "empty.jar does not say where it begins"),
        ("SPARK '{here}/empty.jar' OPTIONS (class = 'com.Main')", "empty.jar has no class com.Main"),
        ("SPARK '{here}/score.py' USING s AS (SELECT product AS for_day FROM {db}.sales WHERE day = today)",
         "the program finds in for_day for which partition a row is"),
        (("SPARK '{here}/score.py' USING s AS (SELECT a.*, b.product FROM {db}.sales a JOIN {db}.sales b "
         "ON a.product = b.product WHERE a.day = today AND b.day = today)"), "two columns of this input are called"),
        ("PYTHON 'varve.sql.sql_project:load' OPTIONS (class = 'x')", "PYTHON has no option class; it has none."),
    ],
)  # fmt: skip
def test_check_says_of_a_program_what_stands_against_it(tmp_path: Path, body: str, expected: str) -> None:
    (tmp_path / "score.py").write_text("pass", encoding="utf-8")
    (tmp_path / "broken.py").write_text("pass pass", encoding="utf-8")
    (tmp_path / "broken.jar").write_text("no archive", encoding="utf-8")
    zipfile.ZipFile(tmp_path / "empty.jar", "w").close()
    with pytest.raises(SqlErrors) as caught:
        project("shop", "", body=body.replace("{here}", str(tmp_path)))
    assert expected in str(caught.value)
    assert str(caught.value).startswith("scores.sql:6:")


def test_another_program_is_another_version_of_the_code(tmp_path: Path) -> None:
    versions = []
    for text in ("pass", "print()", "print()  # the same"):
        (tmp_path / "score.py").write_text(text, encoding="utf-8")
        versions.append({asset.dataset.table: asset.code_version for asset in project("shop", tmp_path / "score.py")})
    assert versions[0]["scores"] != versions[1]["scores"]
    assert versions[1]["scores"] == versions[2]["scores"]
    assert versions[0]["sales"] == versions[1]["sales"]
