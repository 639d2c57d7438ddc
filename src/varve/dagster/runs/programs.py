"""Programs that spark-submit runs on the rows of a build: their input, their execution, and their output.

A program gets one argument before its own: a private folder with `task.json`, `inputs/<name>/` in parquet, and no
`output/` yet, which the program writes (docs/sql.md has the contract). The folder is removed when the build ends. What
a killed run leaves is found by the sweep, as it lies where Spark's own staging folders do.

Not here: which rows the inputs are (varve/dagster/assets/sql_rows.py), and whether the output's columns fit
(varve/stores/frames.py).
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

from varve.model.errors import NOTHING_LOST, BadInput, VarveError
from varve.model.partitions.key import plain
from varve.services.files import open_files
from varve.services.java import java_home
from varve.services.secrets import redacted, spark_properties
from varve.services.spark import SESSION_CONF
from varve.services.spark_server import static_conf
from varve.sql.code.foreign import program as find_program
from varve.stores.frames import spark_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

TAIL = 25
# Environment variables of this process' own Spark session. With them, the program would connect to our Spark server.
_SESSION_VARIABLES = (
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    "SPARK_API_MODE", "SPARK_TESTING", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS",
)  # fmt: skip
# Settings of the embedded metastore. Only one process at a time can open it, and that is Varve's own Spark server.
_METASTORE_SETTINGS = ("spark.sql.catalogImplementation", "spark.hadoop.javax.", "spark.driver.extraJavaOptions")
_THREADS = 8
_SECONDS_TO_END = 10


@dataclass(frozen=True)
class Program:
    """The program to run: a `.py` or a `.jar`, by its path or URI.

    Attributes:
        submit: options of spark-submit, by their names without dashes.
        conf: settings of the program's Spark.
        arguments: the program's own arguments, which follow the folder.
    """

    path: str
    submit: Mapping[str, str]
    conf: Mapping[str, str]
    arguments: Sequence[str] = ()


@dataclass(frozen=True)
class ProgramTask:
    """One run of a program: its private folder, and the build whose rows it writes.

    Attributes:
        scopes: by partition of the build, the values of the variables of its scope.
        types: the Spark types of those variables.
        scratch: where the store of its dataset has files on their way to a batch: see `Store.scratch`.
    """

    settings: Settings
    build: Build
    spark: SparkSession
    scopes: Mapping[PartitionKey, Mapping[str, object]]
    types: Mapping[str, str]
    scratch: str

    @property
    def folder(self) -> str:
        """The private folder; it lies where every Spark of a deployment can reach it."""
        return f"{self.scratch}/.spark-staging-program-{self.build.batch_id}"

    @property
    def output(self) -> str:
        """The folder into which the program writes."""
        return f"{self.folder}/output"

    def run(self, program: Program, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Run the program, and return the rows that it has written.

        Raises VarveError where the program failed, and BadInput where its output is no table.
        """
        for name, frame in inputs.items():
            frame.write.parquet(self._input(name))
        files, path = open_files(self.folder)
        files.makedirs(path, exist_ok=True)
        with files.open(f"{path}/task.json", "w", encoding="utf-8") as file:
            json.dump(self._task_values(list(inputs)), file, indent=1, ensure_ascii=False)
        exit_code, tail = followed(self.settings, program, self.folder)
        if exit_code:
            ending = f"was ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with {exit_code}"
            log = redacted("\n".join(tail))
            raise VarveError(f"{self.build}: {program.path} {ending}. {NOTHING_LOST} The end of its log:\n{log}")
        return self._output_frame(program)

    def remove(self) -> None:
        """Remove the private folder."""
        files, path = open_files(self.folder)
        if files.exists(path):
            files.rm(path, recursive=True)

    def _input(self, name: str) -> str:
        return f"{self.folder}/inputs/{name}"

    def _task_values(self, inputs: Sequence[str]) -> dict[str, Any]:
        dataset = self.build.dataset
        return {
            "dataset": dataset.name,
            "columns": {
                column.name: str(column.type) for column in (*dataset.schema.columns, *dataset.partition_columns)
            },
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

    def _output_frame(self, program: Program) -> DataFrame:
        """Return the output as a frame, after the schemas of all its files were compared. Raises BadInput."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def refused(what_happened: str) -> BadInput:
            return BadInput(f"{self.build}: {program.path} {what_happened} {NOTHING_LOST}")

        files, path = open_files(self.output)
        data_files = (
            [name for name in files.find(path) if _is_data(name.removeprefix(path))] if files.exists(path) else []
        )
        if not data_files and files.exists(f"{path}/_SUCCESS"):
            # Spark has written a table without rows by partitions. There is no file that has its columns.
            declared = spark_schema((*self.build.dataset.schema.columns, *self.build.dataset.partition_columns))
            return self.spark.createDataFrame([], declared)
        if not data_files:
            raise refused(f"ended well, but wrote nothing to {self.output}. Write a table there, if only an empty one.")

        def schema_of(name: str) -> pa.Schema:
            with files.open(name, "rb") as file:
                return pq.read_schema(file).remove_metadata()

        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                schemas = list(pool.map(schema_of, data_files))
        except (pa.ArrowInvalid, OSError) as error:
            raise refused(f"wrote to {self.output} what is no parquet: {error}.") from error
        for name, schema in zip(data_files, schemas, strict=True):
            if not schema.equals(schemas[0]):
                first_columns, other_columns = (
                    ", ".join(f"{column.name} {column.type}" for column in file_schema)
                    for file_schema in (schemas[0], schema)
                )
                raise refused(
                    f"wrote files with unlike columns: {data_files[0]} has {first_columns}; {name} has {other_columns}."
                )
        return self._frame(set(schemas[0].names))

    def _frame(self, file_columns: set[str]) -> DataFrame:
        """Return the rows. Columns that are folders (`partitionBy`) get the declared types, which Spark would guess."""
        from pyspark.sql.types import StructField, StructType

        output = self.spark.read.parquet(self.output)
        partitions = {
            column.name: column for column in self.build.dataset.partition_columns if column.name not in file_columns
        }
        if not partitions:
            return output
        empty = ", ".join(f"`{name}` {column.type}" for name, column in partitions.items())
        types = {field.name: field.dataType for field in self.spark.createDataFrame([], empty).schema.fields}
        fields = [StructField(field.name, types.get(field.name, field.dataType)) for field in output.schema.fields]
        return self.spark.read.schema(StructType(fields)).parquet(self.output)


def settings_of(settings: Settings, program: Program, folder: str) -> dict[str, str]:
    """Return the settings of the program's Spark."""
    master = _master(settings, program)
    conf = {**SESSION_CONF, **static_conf(settings), "spark.app.name": f"varve {Path(program.path).name}"}
    if settings.hive_metastore_uri is None:
        conf = {name: value for name, value in conf.items() if not name.startswith(_METASTORE_SETTINGS)}
    if master.startswith("local"):
        # Tables that the program may save are removed with the folder.
        conf["spark.sql.warehouse.dir"] = f"{folder}/warehouse"
    else:
        # On a cluster, the cluster's own configuration decides these settings.
        our_prefixes = ("spark.driver.", "spark.sql.warehouse")
        conf = {name: value for name, value in conf.items() if not name.startswith(our_prefixes)} | settings.spark_conf
    return {**conf, **program.conf}


def own_properties(program: Program) -> str | None:
    """Return the properties file that the dataset itself names, or None."""
    return program.submit.get("properties_file")


def command(settings: Settings, program: Program, folder: str, conf: str) -> list[str]:
    """Return the command line of the spark-submit of the installed PySpark; `conf` is the path of its properties file.

    Settings are not written into the command line, which everybody on the machine may read: some are passwords.
    """
    import pyspark

    own_options = ("master", "properties_file")
    options = [
        ("master", _master(settings, program)),
        *((name, value) for name, value in program.submit.items() if name not in own_options),
        ("properties_file", conf),
    ]
    # spark-submit ignores a cluster's default settings when a properties file is given, unless it is told to load them.
    defaults = ["--load-spark-defaults"] if own_properties(program) is None else []
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(argument for name, value in options for argument in (f"--{name.replace('_', '-')}", value)),
        *defaults,
        str(find_program(program.path, settings.project) or program.path),
        folder,
        *program.arguments,
    ]


def _master(settings: Settings, program: Program) -> str:
    return program.submit.get("master") or settings.spark_master or "local[*]"


def environment(settings: Settings, program: Program) -> dict[str, str]:
    """Return the environment of the program: this process' one, with a Java, without the variables of our session."""
    variables = {name: value for name, value in os.environ.items() if name not in _SESSION_VARIABLES}
    variables["PYTHONPATH"] = os.pathsep.join([str(settings.project), *filter(None, [variables.get("PYTHONPATH")])])
    variables["PYSPARK_PYTHON"] = variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The program's log shall appear while it is written, and in order.
    variables["PYTHONUNBUFFERED"] = "1"
    if (program.submit.get("master") or settings.spark_master or "local").startswith("local"):
        variables.pop("SPARK_HOME", None)
        variables.pop("SPARK_CONF_DIR", None)
        variables["JAVA_HOME"] = str(java_home(settings.home_dir))
        variables.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def followed(settings: Settings, program: Program, folder: str) -> tuple[int, Sequence[str]]:
    """Run a program to its end, and return its exit code and the last lines of its log."""
    with spark_properties(settings_of(settings, program, folder), also=own_properties(program)) as properties_file:
        return _run_to_end(
            command(settings, program, folder, properties_file), environment(settings, program), settings.project
        )


def _run_to_end(
    command_line: Sequence[str], environment_variables: Mapping[str, str], folder: Path
) -> tuple[int, Sequence[str]]:
    """Run a command to its end, and return its exit code and the last lines of its log.

    The log is copied to stderr, where Dagster captures it.
    """
    tail: deque[str] = deque(maxlen=TAIL)
    process = subprocess.Popen(
        command_line,
        env=dict(environment_variables),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With a session of its own, the program's JVM and Python can be ended together.
        start_new_session=True,
    )
    assert process.stdout is not None
    # A thread reads the log: processes that the program leaves in the background may keep the pipe open after its end.
    reader = threading.Thread(target=_copy_log, args=(process.stdout, tail), daemon=True)
    reader.start()
    try:
        exit_code = process.wait()
    finally:
        _end_process_group(process)
        reader.join(_SECONDS_TO_END)
    return exit_code, tail


def _copy_log(lines: IO[str], tail: deque[str]) -> None:
    with lines:
        for line in lines:
            sys.stderr.write(line)
            tail.append(line.rstrip("\n"))


def _end_process_group(process: subprocess.Popen[str]) -> None:
    """End the program, which still runs where the run was cancelled, and all processes that it has started."""
    for end_signal in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, end_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)


def arguments(text: str | None) -> list[str]:
    """Return the words of the option `args`, as a shell splits them."""
    return shlex.split(text or "")


def _is_data(name: str) -> bool:
    """Return whether Spark would read the file: no part of its path in the output begins with `.` or `_`."""
    return not any(part.startswith((".", "_")) for part in name.split("/") if part and "=" not in part)


def _as_json(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
