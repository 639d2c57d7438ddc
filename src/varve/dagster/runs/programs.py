"""Programs that spark-submit runs on the rows of a build: their input and their output.

A program gets one argument before its own: a private folder with `task.json`, `inputs/<name>/` in parquet, and no
`output/` yet, which the program writes (docs/sql.md has the contract). The folder is removed when the build ends. What
a killed run leaves is found by the sweep, as it lies where Spark's own staging folders do.

Not here: spark-submit (spark_submit.py), which rows the inputs are (varve/dagster/assets/sql_rows.py), and whether the
output's columns fit (varve/stores/frames.py).
"""

from __future__ import annotations

import datetime as dt
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.dagster.runs.spark_submit import followed
from varve.model.errors import NOTHING_LOST, BadInput, VarveError
from varve.model.partitions.key import plain
from varve.services.files import open_files
from varve.services.secrets import redacted
from varve.stores.frames import spark_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.dagster.runs.spark_submit import Program
    from varve.model.build import Build
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

_THREADS = 8


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


def _is_data(name: str) -> bool:
    """Return whether Spark would read the file: no part of its path in the output begins with `.` or `_`."""
    return not any(part.startswith((".", "_")) for part in name.split("/") if part and "=" not in part)


def _as_json(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
