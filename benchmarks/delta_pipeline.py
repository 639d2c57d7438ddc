"""The lake's side of benchmarks/correction.py: the same pipeline by MERGE of Delta Lake, as people write it.

    python benchmarks/delta_pipeline.py FOLDER JARS first
    python benchmarks/delta_pipeline.py FOLDER JARS correct DAY CSV
    python benchmarks/delta_pipeline.py FOLDER - watch
    python benchmarks/delta_pipeline.py FOLDER - dump

`first` makes the tables from the CSV files in FOLDER/landing, `correct` takes a corrected file of a day and merges what
follows into each table, one after the other: a person has written down which days each table looks back. `watch` asks
for months and trailing 28 days of the newest versions, by the library `deltalake`, until its input ends, and prints
how many answers it had and how many were mixed. `dump` writes the tables as CSV, for comparison. `first` and `correct`
run in a Spark that Delta Lake has a release for; the last line of their output is JSON.

Not here: anything of Varve, which that Python need not have.
"""

import datetime as dt
import json
import select
import sys
from pathlib import Path
from typing import Any

_TRAILING = """
    SELECT e.day, d.origin, SUM(d.delay) AS delay FROM (SELECT DISTINCT day FROM {delays} WHERE {wanted}) e
    JOIN {delays} d ON d.day BETWEEN DATE_SUB(e.day, %d) AND e.day AND {read} GROUP BY e.day, d.origin
"""
_DELAYS = """
    SELECT day, origin, carrier, COUNT(*) AS flights, SUM(delay) AS delay FROM {flights} WHERE {wanted}
    GROUP BY day, origin, carrier
"""
_WORST = """
    SELECT CAST(DATE_TRUNC('%s', day) AS DATE) AS %s, origin, MAX(delay) AS delay FROM {%s} WHERE {wanted} GROUP BY 1, 2
"""
# For each table: its column of time, its key, and its query; `wanted` is a condition on the day, and `read` the one
# that lets Delta Lake leave out the partitions that no wanted day looks back to.
TABLES = {
    "delays": (
        "day", ("day", "origin", "carrier"),
        _DELAYS,
    ),
    "trailing7": ("day", ("day", "origin"), _TRAILING % 6),
    "trailing28": ("day", ("day", "origin"), _TRAILING % 27),
    "weekly": ("week", ("week", "origin"), _WORST % ("week", "week", "trailing7")),
    "monthly": ("month", ("month", "origin"), _WORST % ("month", "month", "trailing28")),
}  # fmt: skip
_LOOK_BACK = {"delays": 0, "trailing7": 6, "trailing28": 27}
_FLIGHTS = "origin STRING, carrier STRING, delay BIGINT"


def main() -> None:
    folder, jars, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if command == "watch":
        watch(folder)
    elif command == "dump":
        dump(folder)
    else:
        spark = session(folder, jars)
        if command == "first":
            first(spark, folder)
        else:
            correct(spark, folder, dt.date.fromisoformat(sys.argv[4]), sys.argv[5])
        print(json.dumps({"rows": rows_written(spark, folder)}))


def session(folder: Path, jars: str) -> Any:
    from pyspark.sql import SparkSession

    (folder / "events").mkdir(exist_ok=True)
    return (
        SparkSession.builder.master("local[2]")
        .config(map=event_log(folder / "events"))
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )


def event_log(folder: Path) -> dict[str, Any]:
    """What tells Spark to write down what its tasks did."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.resolve().as_uri(),
    }


def table(folder: Path, name: str) -> str:
    return f"delta.`{folder}/tables/{name}`"


def query_of(folder: Path, name: str, wanted: str, read: str = "TRUE") -> str:
    paths = {each: table(folder, each) for each in ("flights", *TABLES)}
    return TABLES[name][2].format(wanted=wanted, read=read, **paths)


def first(spark: Any, folder: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    files = spark.read.csv(f"{folder}/landing", header=True, schema=_FLIGHTS)
    day = F.to_date(F.regexp_extract(F.input_file_name(), r"flights_(\d{4}-\d\d-\d\d)\.csv", 1))
    flights = files.withColumn("day", day).repartition("day")
    flights.write.format("delta").partitionBy("day").save(f"{folder}/tables/flights")
    for name, (column, _, _) in TABLES.items():
        made = spark.sql(query_of(folder, name, "TRUE"))
        by = (column,) if name == "delays" else ()
        made.repartition(*(by or (1,))).write.format("delta").partitionBy(*by).save(f"{folder}/tables/{name}")


def correct(spark: Any, folder: Path, day: dt.date, file: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    corrected = spark.read.csv(file, header=True, schema=_FLIGHTS).withColumn("day", F.lit(day))
    corrected.write.format("delta").mode("overwrite").option("replaceWhere", f"day = '{day}'").save(
        f"{folder}/tables/flights"
    )
    for name, (column, key, _) in TABLES.items():
        read = "TRUE"
        if name in _LOOK_BACK:
            back = dt.timedelta(days=_LOOK_BACK[name])
            begin, end = day, day + back
            read = f"d.day BETWEEN '{begin - back}' AND '{end}'"
            wanted = there = f"day BETWEEN '{begin}' AND '{end}'"
        else:
            unit = column
            begin = day
            end = day + dt.timedelta(days=6 if name == "weekly" else 27)
            wanted = (
                f"day >= DATE_TRUNC('{unit}', DATE'{begin}') AND "
                f"day < DATE_TRUNC('{unit}', DATE'{end}') + INTERVAL 1 {unit.upper()}"
            )
            there = f"{column} BETWEEN DATE_TRUNC('{unit}', DATE'{begin}') AND DATE'{end}'"
        matches = " AND ".join(f"t.{column} = s.{column}" for column in key)
        in_range = there.replace(column, f"t.{column}", 1)
        spark.sql(f"""
            MERGE INTO {table(folder, name)} t USING ({query_of(folder, name, wanted, read)}) s
            ON {matches} AND {in_range}
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
            WHEN NOT MATCHED BY SOURCE AND {in_range} THEN DELETE
        """)


def rows_written(spark: Any, folder: Path) -> int:
    """The rows that the newest version of each table has written."""
    rows = 0
    for name in ("flights", *TABLES):
        newest = spark.sql(f"DESCRIBE HISTORY {table(folder, name)} LIMIT 1").first()
        rows += int(newest["operationMetrics"]["numOutputRows"])
    return rows


def newest_of(folder: Path, name: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable  # type: ignore[import-not-found, unused-ignore]

    rows: list[dict[str, Any]] = DeltaTable(f"{folder}/tables/{name}").to_pyarrow_table().to_pylist()
    return rows


def watch(folder: Path) -> None:
    answers = mixed = 0
    print("asking", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        months: list[dict[str, Any]] = newest_of(folder, "monthly")
        worst: dict[tuple[Any, Any], int] = {}
        for row in newest_of(folder, "trailing28"):
            of = row["day"].replace(day=1), row["origin"]
            worst[of] = max(worst.get(of, row["delay"]), row["delay"])
        answers += 1
        mixed += any(row["delay"] != worst[row["month"], row["origin"]] for row in months)
    print(json.dumps({"answers": answers, "mixed": mixed}))


def dump(folder: Path) -> None:
    import csv

    for name in TABLES:
        rows = newest_of(folder, name)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, sorted(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
