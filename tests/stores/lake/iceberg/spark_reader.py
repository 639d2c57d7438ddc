"""A Spark of others, with Iceberg's runtime: `python spark_reader.py JARS OPTIONS QUERIES FOLDER`.

Runs in a PySpark for which Iceberg has a release. OPTIONS is a JSON object of settings, QUERIES a JSON list; the rows
of each query are written as Arrow into FOLDER, as `0.arrow` and so on. Nothing of Varve is imported.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    jars, options, queries, folder = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4])
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for number, query in enumerate(queries):
        table = spark.sql(query).toArrow()
        with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main()
