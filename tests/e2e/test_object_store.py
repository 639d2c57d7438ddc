"""The lake on `s3a://`: a real S3 API on loopback, Hadoop's own client for it in Spark, s3fs in Python.

Spark fetches the client as a package when its server starts: where it cannot be had, these tests fail.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyspark
import pytest
import s3fs
import tenacity

from tests.e2e.project import Project, Reader, days, flights
from tests.stores.lake.iceberg.readers import iceberg_catalog
from varve.services.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

NAME = "flights.departures"
FIRST, SECOND, EMPTY = DAYS = days(dt.date(2013, 3, 4), 3)
LAKE = "s3a://bucket/lake"


def client_package() -> str:
    """Hadoop's client of S3, of the version of Spark's own Hadoop."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return f"org.apache.hadoop:hadoop-aws:{jar.stem.removeprefix('hadoop-client-api-')}"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server with one empty bucket."""
    port = free_port()
    server = subprocess.Popen(
        [Path(sys.executable).parent / "moto_server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _listening(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@tenacity.retry(stop=tenacity.stop_after_delay(60), wait=tenacity.wait_fixed(0.1), reraise=True)
def _listening(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> s3fs.S3FileSystem:
    """The bucket as its owner sees it."""
    found = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=endpoint, use_listings_cache=False)  # noqa: S106
    found.mkdir("bucket")
    return found


@pytest.fixture(scope="module")
def cloud(endpoint: str, bucket: s3fs.S3FileSystem) -> Iterator[Project]:
    """A project whose lake is in the bucket: two days and an empty one in one run, then the first again."""
    conf = {
        "spark.jars.packages": client_package(),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    credentials = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }
    with Project.of_its_own("s3") as local:
        project = Project({**local.environment, **credentials}).having(lake_root=LAKE, spark_conf=json.dumps(conf))
        project.send_flights(FIRST, SECOND)
        project.send_flights(EMPTY, keep=0)
        project.must_materialize("flights/departures", partitions=f"{FIRST}...{EMPTY}")
        project.send_flights(FIRST, keep=100)
        project.must_materialize("flights/departures", partition=str(FIRST))
        yield project


@pytest.fixture(scope="module")
def reader(cloud: Project) -> Iterator[Reader]:
    found = Reader(cloud)
    yield found
    found.close()


def by_name(reader: Reader) -> dict[str, int]:
    found = reader.sql(f"SELECT day, count(*) FROM {NAME} GROUP BY day")
    return {str(day): rows for day, rows in found}


def in_folders(cloud: Project, bucket: s3fs.S3FileSystem) -> dict[str, int]:
    """The rows in the current folders, as anybody's parquet."""
    found = {}
    for path, batch in cloud.current(NAME).items():
        assert batch.location.startswith(f"{LAKE}/flights/departures/{path}/batch_id=")
        files = bucket.glob(f"{batch.location}/*.parquet")
        assert files
        found[path] = sum(pq.read_metadata(bucket.open(file)).num_rows for file in files)
    return found


def test_what_was_published_is_read_by_name_and_by_folder(
    cloud: Project, reader: Reader, bucket: s3fs.S3FileSystem
) -> None:
    second = len(flights(SECOND))
    assert by_name(reader) == {str(FIRST): 100, str(SECOND): second}
    assert in_folders(cloud, bucket) == {f"day={FIRST}": 100, f"day={SECOND}": second, f"day={EMPTY}": 0}
    script = (
        "from assets.flights import DEPARTURES; from varve.dagster.reading import open_reader\n"
        "with open_reader() as reader: print('rows:', reader.read(DEPARTURES).count())"
    )
    assert f"rows: {second + 100}" in cloud.run("-c", script).output


def test_the_iceberg_table_is_read_from_the_bucket(cloud: Project, endpoint: str) -> None:
    access = {"s3.endpoint": endpoint, "s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    catalog = iceberg_catalog(cloud.settings, **access, **{"s3.region": "us-east-1"})
    try:
        table = catalog.load_table(NAME)
        assert table.metadata_location.startswith(f"{LAKE}/flights/departures/_iceberg/")
        counts = table.scan(selected_fields=("day",)).to_arrow().group_by("day").aggregate([([], "count_all")])
    finally:
        catalog.engine.dispose()
    assert {row["day"]: row["count_all"] for row in counts.to_pylist()} == {FIRST: 100, SECOND: len(flights(SECOND))}


def test_a_run_leaves_nothing_but_batches_and_the_record(cloud: Project, bucket: s3fs.S3FileSystem) -> None:
    steps = {step.partition("=")[0] for name in bucket.find("bucket/lake") for step in name.split("/")[:-1]}
    assert steps == {"bucket", "lake", "flights", "departures", "day", "batch_id", "_varve", "_iceberg"}


def test_going_back_sweeping_and_a_killed_run_are_the_same_as_on_a_disk(
    cloud: Project, reader: Reader, bucket: s3fs.S3FileSystem
) -> None:
    newest, oldest = cloud.varve_json("history", NAME, f"day={FIRST}")
    cloud.varve_json("rollback", NAME, f"day={FIRST}", "--to", str(oldest["batch_id"]))
    assert by_name(reader)[str(FIRST)] == len(flights(FIRST))
    killed = cloud.crash("before", "varve.catalog.catalog:Catalog.publish", "flights/departures", partition=str(SECOND))
    assert killed.code < 0
    assert by_name(reader)[str(SECOND)] == len(flights(SECOND))
    assert "its run ended without a word" in cloud.varve("doctor", NAME).told
    swept = cloud.varve_json("sweep", NAME, "--older-than", "0", "--orphans-older-than", "0")
    assert swept["batches"][NAME]["count"] == 1
    assert not bucket.exists(newest["location"])
    assert len(swept["orphan_locations"]) == 1
    well = cloud.varve("doctor", NAME)
    assert well.code == 0, well.output
    assert by_name(reader) == {str(day): len(flights(day)) for day in (FIRST, SECOND)}
    cloud.must_materialize("flights/departures", partition=str(SECOND))


def test_a_lost_catalog_is_rebuilt_from_the_bucket(cloud: Project) -> None:
    before = {path: batch.batch_id for path, batch in cloud.current(NAME).items()}
    with cloud.catalog() as catalog:
        catalog.connection.execute("drop schema varve cascade")
    rebuilt = cloud.varve_json("repair", "--from-storage")
    assert rebuilt["findings"] == []
    assert {path: batch.batch_id for path, batch in cloud.current(NAME).items()} == before
    assert cloud.varve("doctor", NAME).code == 0
