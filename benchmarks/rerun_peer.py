"""The peers of benchmarks/lake.py: one day written again by Delta Lake or Iceberg, in a Spark they have a release for.

`python benchmarks/rerun_peer.py PEER FOLDER DAY ROUNDS UNCOUNTED JARS`; the last line of the output is JSON.
Not here: anything of Varve, which that Python need not have.
"""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

OPTIONS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
    },
}


def main() -> None:
    peer, home, day, jars = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[6]
    rounds, uncounted = int(sys.argv[4]), int(sys.argv[5])
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.sql.warehouse.dir", f"{home}/{peer}-warehouse")
        .config("spark.sql.catalog.ice.warehouse", f"{home}/iceberg")
    )
    for name, value in OPTIONS[peer].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.read.parquet(f"{home}/repeated")
    one = source.where(f"day = DATE'{day}'")
    if peer == "delta":
        source.repartition("day").write.format("delta").partitionBy("day").save(f"{home}/delta")
    else:
        spark.sql("CREATE DATABASE IF NOT EXISTS ice.bench")
        source.repartition("day").writeTo("ice.bench.flights").partitionedBy(F.col("day")).create()
    seconds = []
    for number in range(rounds + uncounted):
        began = time.perf_counter()
        if peer == "delta":
            one.write.format("delta").mode("overwrite").option("replaceWhere", f"day = '{day}'").save(f"{home}/delta")
        else:
            one.writeTo("ice.bench.flights").overwritePartitions()
        if number >= uncounted:
            seconds.append(time.perf_counter() - began)
    print(json.dumps({"rows": one.count(), "seconds": {f"rerun: {peer}": seconds}}))


if __name__ == "__main__":
    main()
