"""A deployed Hive metastore, as a process of its own: Spark and our own client speak to it at the same time.

The metastore is the one inside PySpark; a JDK runs its launcher from source.
"""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from assets.flights import DEPARTURES
from tests.e2e.project import HERE, Project, Reader, days, flights, wait_until
from varve.model.external import ExternalTable, ExternalTableKind
from varve.services.jvm.java import java_home
from varve.services.ports import free_port
from varve.sources.external.hive import HiveTable
from varve.stores.folders import metastore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

NAME = "flights.departures"
DAYS = days(dt.date(2013, 4, 1), 6)
RANGE = f"{DAYS[0]}...{DAYS[-1]}"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="varve-hms-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture(scope="module")
def uri(home: Path) -> Iterator[str]:
    """A metastore on the loopback address."""
    port, folder, log = free_port(), home / "metastore", home / "metastore.log"
    folder.mkdir()
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        str(java_home(home) / "bin" / "java"), "-Xmx512m", f"-Dderby.stream.error.file={home / 'derby.log'}",
        "-cp", f"{jars}/*", str(HERE / "LoopbackMetastore.java"), str(port), str(folder),
    ]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: process.poll() is not None or b"listening" in log.read_bytes(),
            seconds=120, what="the metastore listens", log=log,
        )  # fmt: skip
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def deployed(home: Path, uri: str) -> Iterator[Project]:
    found = Project.at(home).having(hive_metastore_uri=uri)
    yield found
    found.end_services()


def test_a_rerun_of_many_partitions_moves_them_in_one_call_and_readers_by_name_see_them(
    deployed: Project, uri: str
) -> None:
    deployed.send_flights(*DAYS)
    deployed.must_materialize("flights/departures", partitions=RANGE)
    before = deployed.current(NAME)
    reader = Reader(deployed)
    try:
        count = f"SELECT day, count(*) FROM {NAME} GROUP BY day ORDER BY day"
        assert [rows for _, rows in reader.sql(count)] == [len(flights(day)) for day in DAYS]

        deployed.send_flights(*DAYS, keep=50)
        deployed.must_materialize("flights/departures", partitions=RANGE)
        after = deployed.current(NAME)
        shown = metastore.locations(uri, DEPARTURES)
        assert {path: place.removeprefix("file:") for path, place in shown.items()} == {
            path: batch.location for path, batch in after.items()
        }
        # As others see the table who take its partitions over: without Spark too.
        listed = HiveTable(ExternalTable(ExternalTableKind.TABLE, NAME), pytest.fail, uri)._partitions(DEPARTURES, None)
        assert {f"day={texts['day']}": place for texts, place in listed} == shown
        assert [rows for _, rows in reader.sql(count)] == [50] * len(DAYS)
        assert deployed.varve("doctor", NAME).code == 0

        # Without Spark: our client alone, and back by the repair.
        moved = metastore.move(uri, DEPARTURES, list(before.values()))
        assert {batch.partition for batch in moved} == set(before)
        assert [rows for _, rows in reader.sql(count)] == [len(flights(day)) for day in DAYS]
        assert len(deployed.varve_json("doctor", NAME)["findings"]) == len(DAYS)
        assert deployed.varve_json("repair", NAME)["shown"] == {NAME: len(DAYS)}
        assert [rows for _, rows in reader.sql(count)] == [50] * len(DAYS)
    finally:
        reader.close()


def test_what_the_metastore_does_not_know_is_left_to_spark(deployed: Project, uri: str) -> None:
    (known, *_) = deployed.current(NAME).values()
    strange = known.__class__(
        "day=2013-12-24", known.batch_id, "/x/day=2013-12-24/batch_id=1", 1, 1, "", known.published_at, frozenset()
    )
    assert metastore.move(uri, DEPARTURES, [strange, known]) == [known]


def test_a_metastore_that_does_not_answer_is_told(home: Path) -> None:
    with pytest.raises(metastore.MetastoreUnusable, match=r"thrift://127\.0\.0\.1:1: "):
        metastore.locations("thrift://127.0.0.1:1", DEPARTURES)
