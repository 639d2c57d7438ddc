"""The peer of benchmarks/cdc.py: MERGE of Delta Lake, in a Spark that it has a release for.

`python benchmarks/merge_peer.py FOLDER ROUNDS JARS MEMORY`; the last line of the output is JSON. The last event of each
key is found first, as MERGE asks for. Not here: anything of Varve, which that Python need not have.
"""

import json
import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    home, rounds, jars, memory = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.warehouse.dir", f"{home}/delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    spark.read.parquet(f"{home}/base").createOrReplaceTempView("base")
    spark.read.parquet(f"{home}/events").createOrReplaceTempView("events")
    last = """
        select key, last.* from (
            select coalesce(get(oldKeyValues, 0), get(columnValues, 0)) key,
                max_by(
                    struct(changeType, get(columnValues, 0) id, get(columnValues, 1) name, get(columnValues, 2) seats),
                    struct(commitLsn, seq)
                ) last
            from events group by 1)
    """
    seconds = []
    for round_ in range(rounds):
        spark.sql(f"create table t{round_} using delta as select * from base")
        began = time.perf_counter()
        spark.sql(f"""
            merge into t{round_} t using ({last}) e on t.id = e.key
            when matched and e.changeType = 'delete' then delete
            when matched then update set id = e.id, name = e.name, seats = e.seats
            when not matched and e.changeType <> 'delete' then insert (id, name, seats) values (e.id, e.name, e.seats)
        """)
        seconds.append(time.perf_counter() - began)
    row = spark.sql(
        f"select count(*) n, sum(cast(xxhash64(id, name, seats) as decimal(38))) h from t{rounds - 1}"
    ).first()
    assert row is not None
    print(json.dumps({"seconds": seconds, "fingerprint": [int(row["n"]), int(row["h"])]}))


if __name__ == "__main__":
    main()
