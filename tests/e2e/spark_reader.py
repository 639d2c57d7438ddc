"""A reader of the lake: plain PySpark and the discovery file of the shared server; imports nothing of Varve.

Each line of the standard input is a query; its rows come back as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = found["token"]
spark = SparkSession.builder.remote(f"sc://localhost:{found['port']}").getOrCreate()
for line in sys.stdin:
    rows = [list(row) for row in spark.sql(line).collect()]
    assert not {"varve", "resources", "pipeline_defs", "assets"} & set(sys.modules)
    sys.stdout.write(json.dumps(rows, default=str) + "\n")
    sys.stdout.flush()
