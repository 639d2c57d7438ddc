"""A program that spark-submit runs on the rows of a build: what it gets, how it is run, and what it has written.

It gets one argument before its own: a private folder with `task.json`, `inputs/<name>/` in parquet, and no `output/`
yet, which is the program's to write (docs/sql.md has the contract). The folder goes when the build ends; what a killed
run leaves is found by the sweep, as it lies where Spark's own staging does.

Not here: which rows the inputs are (assets/sql_rows.py), and whether the output's columns fit (varve/stores/frames.py).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from varve.model.dataset import StoreKind
from varve.model.errors import NOTHING_LOST, BadInput, VarveError
from varve.model.partitions.key import plain
from varve.services.files import open_files
from varve.services.java import java_home
from varve.services.secrets import redacted, spark_properties
from varve.services.spark import SESSION_CONF
from varve.services.spark_server import static_conf
from varve.sql.foreign_code import program as find
from varve.stores.folders.layout import Layout
from varve.stores.frames import spark_schema
from varve.stores.open import SPOOL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

TAIL = 25
# What this process' own session has put into the environment, and would make another Spark of the program's.
_OF_OUR_SESSION = (
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    "SPARK_API_MODE", "SPARK_TESTING", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS",
)  # fmt: skip
# One process at a time has the embedded metastore, and that is Varve's own Spark.
_OF_THE_METASTORE = ("spark.sql.catalogImplementation", "spark.hadoop.javax.", "spark.driver.extraJavaOptions")
_THREADS = 8
_SECONDS_TO_END = 10


@dataclass(frozen=True)
class Program:
    """What to run: a `.py` or a `.jar`, by its path or URI.

    Attributes:
        submit: options of spark-submit, by their names without dashes.
        conf: settings of its Spark.
        arguments: its own, after the folder.
    """

    path: str
    submit: Mapping[str, str]
    conf: Mapping[str, str]
    arguments: Sequence[str] = ()


@dataclass(frozen=True)
class ProgramTask:
    """One run of a program: its private folder, and the build whose rows it writes.

    Attributes:
        scopes: for each partition of the build the values of its scope's variables.
        types: the Spark types of those variables.
    """

    settings: Settings
    build: Build
    spark: SparkSession
    scopes: Mapping[PartitionKey, Mapping[str, object]]
    types: Mapping[str, str]

    @property
    def folder(self) -> str:
        """The private folder, in the lake, where every Spark of a deployment can reach it."""
        root = self.settings.lake
        layout = Layout(root if self.build.dataset.store is StoreKind.LAKE else f"{root}/{SPOOL}")
        return f"{layout.table(self.build.dataset)}/.spark-staging-program-{self.build.batch_id}"

    @property
    def output(self) -> str:
        """Where the program writes."""
        return f"{self.folder}/output"

    def run(self, program: Program, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """What the program has written. Raises VarveError where it failed, BadInput where that is no table."""
        for name, frame in inputs.items():
            frame.write.parquet(self._input(name))
        files, place = open_files(self.folder)
        files.makedirs(place, exist_ok=True)
        with files.open(f"{place}/task.json", "w", encoding="utf-8") as file:
            json.dump(self._described(list(inputs)), file, indent=1, ensure_ascii=False)
        code, tail = followed(self.settings, program, self.folder)
        if code:
            ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            log = redacted("\n".join(tail))
            raise VarveError(f"{self.build}: {program.path} {ended}. {NOTHING_LOST} The end of its log:\n{log}")
        return self._written(program)

    def remove(self) -> None:
        """Remove the private folder."""
        files, place = open_files(self.folder)
        if files.exists(place):
            files.rm(place, recursive=True)

    def _input(self, name: str) -> str:
        return f"{self.folder}/inputs/{name}"

    def _described(self, inputs: Sequence[str]) -> dict[str, Any]:
        dataset = self.build.dataset
        return {
            "dataset": dataset.name,
            "columns": {each.name: str(each.type) for each in (*dataset.schema.columns, *dataset.partition_columns)},
            "partition_columns": list(dataset.partitioning.names),
            "variables": dict(self.types),
            "scopes": [
                {
                    "partition": {name: _as_json(plain(value)) for name, value in key.fields},
                    "variables": {name: _as_json(value) for name, value in self.scopes[key].items()},
                }
                for key in self.build.partitions
            ],
            "inputs": {name: self._input(name) for name in inputs},
            "output": self.output,
        }

    def _written(self, program: Program) -> DataFrame:
        """The output as a frame, once every file of it has been looked at."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def refused(found: str) -> BadInput:
            return BadInput(f"{self.build}: {program.path} {found} {NOTHING_LOST}")

        files, place = open_files(self.output)
        data = [name for name in files.find(place) if _is_data(name.removeprefix(place))] if files.exists(place) else []
        if not data and files.exists(f"{place}/_SUCCESS"):
            # A table without rows that Spark has written by partitions: there is no file for it to say its columns.
            declared = spark_schema((*self.build.dataset.schema.columns, *self.build.dataset.partition_columns))
            return self.spark.createDataFrame([], declared)
        if not data:
            raise refused(f"ended well, but wrote nothing to {self.output}. Write a table there, if only an empty one.")

        def schema_of(name: str) -> pa.Schema:
            with files.open(name, "rb") as file:
                return pq.read_schema(file).remove_metadata()

        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                schemas = list(pool.map(schema_of, data))
        except (pa.ArrowInvalid, OSError) as error:
            raise refused(f"wrote to {self.output} what is no parquet: {error}.") from error
        for name, schema in zip(data, schemas, strict=True):
            if not schema.equals(schemas[0]):
                one, other = (", ".join(f"{each.name} {each.type}" for each in found) for found in (schemas[0], schema))
                raise refused(f"wrote files with unlike columns: {data[0]} has {one}; {name} has {other}.")
        return self._frame(set(schemas[0].names))

    def _frame(self, inside: set[str]) -> DataFrame:
        """The rows. Columns that are folders (`partitionBy`) have the declared types: Spark would guess at those."""
        from pyspark.sql.types import StructField, StructType

        found = self.spark.read.parquet(self.output)
        partitions = {each.name: each for each in self.build.dataset.partition_columns if each.name not in inside}
        if not partitions:
            return found
        empty = ", ".join(f"`{name}` {each.type}" for name, each in partitions.items())
        types = {each.name: each.dataType for each in self.spark.createDataFrame([], empty).schema.fields}
        fields = [StructField(each.name, types.get(each.name, each.dataType)) for each in found.schema.fields]
        return self.spark.read.schema(StructType(fields)).parquet(self.output)


def settings_of(settings: Settings, program: Program, folder: str) -> dict[str, str]:
    """The settings of the program's Spark."""
    master = _master(settings, program)
    conf = {**SESSION_CONF, **static_conf(settings), "spark.app.name": f"varve {Path(program.path).name}"}
    if settings.hive_metastore_uri is None:
        conf = {name: value for name, value in conf.items() if not name.startswith(_OF_THE_METASTORE)}
    if master.startswith("local"):
        # What it may save as a table goes with the folder.
        conf["spark.sql.warehouse.dir"] = f"{folder}/warehouse"
    else:
        # A cluster's own configuration decides.
        ours = ("spark.driver.", "spark.sql.warehouse")
        conf = {name: value for name, value in conf.items() if not name.startswith(ours)} | settings.spark_conf
    return {**conf, **program.conf}


def own_properties(program: Program) -> str | None:
    """The file of settings that the dataset itself names."""
    return program.submit.get("properties_file")


def command(settings: Settings, program: Program, folder: str, conf: str) -> list[str]:
    """The command line of PySpark's own spark-submit, of this very environment; `conf` is the file of its settings.

    They are no words of it: some are passwords, and everybody on the machine may read a command line.
    """
    import pyspark

    ours = ("master", "properties_file")
    options = [
        ("master", _master(settings, program)),
        *((name, value) for name, value in program.submit.items() if name not in ours),
        ("properties_file", conf),
    ]
    # As without a file of ours: a cluster's defaults count, where no other file was named.
    defaults = ["--load-spark-defaults"] if own_properties(program) is None else []
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(word for name, value in options for word in (f"--{name.replace('_', '-')}", value)),
        *defaults,
        str(find(program.path, settings.project) or program.path),
        folder,
        *program.arguments,
    ]


def _master(settings: Settings, program: Program) -> str:
    return program.submit.get("master") or settings.spark_master or "local[*]"


def environment(settings: Settings, program: Program) -> dict[str, str]:
    """The environment of the program: this one, with a Java, and without what makes a session of Spark Connect."""
    found = {name: value for name, value in os.environ.items() if name not in _OF_OUR_SESSION}
    found["PYTHONPATH"] = os.pathsep.join([str(settings.project), *filter(None, [found.get("PYTHONPATH")])])
    found["PYSPARK_PYTHON"] = found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The log is of use while it is written, and in its order.
    found["PYTHONUNBUFFERED"] = "1"
    if (program.submit.get("master") or settings.spark_master or "local").startswith("local"):
        found.pop("SPARK_HOME", None)
        found.pop("SPARK_CONF_DIR", None)
        found["JAVA_HOME"] = str(java_home(settings.home_dir))
        found.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found


def followed(settings: Settings, program: Program, folder: str) -> tuple[int, Sequence[str]]:
    """Run a program to its end; its code, and the last lines of its log."""
    with spark_properties(settings_of(settings, program, folder), also=own_properties(program)) as conf:
        return _followed(command(settings, program, folder, conf), environment(settings, program), settings.project)


def _followed(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> tuple[int, Sequence[str]]:
    """Run it to its end, its output in ours, where Dagster keeps it; its code and the last lines."""
    tail: deque[str] = deque(maxlen=TAIL)
    process = subprocess.Popen(
        words,
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # Its JVM and its Python are ended together.
        start_new_session=True,
    )
    assert process.stdout is not None
    # Not read here: what it leaves in the background would keep the pipe open after its end.
    reader = threading.Thread(target=_follow, args=(process.stdout, tail), daemon=True)
    reader.start()
    try:
        code = process.wait()
    finally:
        _end(process)
        reader.join(_SECONDS_TO_END)
    return code, tail


def _follow(lines: IO[str], tail: deque[str]) -> None:
    with lines:
        for line in lines:
            sys.stderr.write(line)
            tail.append(line.rstrip("\n"))


def _end(process: subprocess.Popen[str]) -> None:
    """End all that it has started: of a run that was cancelled the program too."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)


def arguments(text: str | None) -> list[str]:
    """The words of the option `args`, as a shell reads them."""
    return shlex.split(text or "")


def _is_data(name: str) -> bool:
    """Whether Spark would read it: nothing in a path from the output on may begin as what is hidden."""
    return not any(step.startswith((".", "_")) for step in name.split("/") if step and "=" not in step)


def _as_json(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
