"""PostgreSQL fails over to its synchronous standby in the middle of publishes and runs: old or new, never neither.

The first server is killed with all its processes, and the standby takes writes. Settings name both.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.stores.warehouse.test_publish import DETROIT, KEYS, PARIS, ZURICH, Desk, periods
from tests.support import standby
from tests.torture.facts import DAYS
from tests.torture.model import Model
from tests.torture.operations import json_of
from tests.torture.project import Ended, TorturedProject
from tests.torture.readers import attempts
from tests.torture.rest import current
from varve.catalog.catalog import Catalog
from varve.model.errors import VarveError
from varve.services.postgres import connect, warehouse_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.standby import Pair
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

pytestmark = pytest.mark.slow

ROUNDS = 2


@pytest.fixture
def pair() -> Iterator[Pair]:
    with standby.pair("varve", "dagster") as found:
        yield found


@pytest.fixture
def both(settings: Settings, pair: Pair) -> Settings:
    """Settings that name both servers."""
    return settings.model_copy(update={"postgres_url": pair.url("varve"), "dagster_postgres_url": pair.url("dagster")})


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_what_a_publish_has_reported_is_there_afterwards_and_readers_see_one_batch_of_each_period(
    both: Settings, pair: Pair, sales: Dataset, tmp_path: Path, round_: int
) -> None:
    reported: dict[str, int] = {}
    over, ended = threading.Event(), threading.Event()
    published = {path: [0, 0] for path in (key.path for key in KEYS)}

    def opened() -> Desk:
        connection = connect(both)
        try:
            Catalog(connection).ensure_schema()
        except BaseException:
            connection.close()
            raise
        return Desk(both, sales, tmp_path, Catalog(connection))

    def publish_on(key: PartitionKey) -> None:
        desk = None
        while not ended.is_set():
            try:
                desk = desk or opened()
                build = desk.publish([key])
            except (psycopg.Error, VarveError):
                # As a run that fails; the next one has a session of its own.
                if desk is not None:
                    desk.catalog.connection.close()
                desk = None
                time.sleep(0.1)
                continue
            reported[key.path] = build.batch_id.millis
            published[key.path][over.is_set()] += 1
        if desk is not None:
            desk.catalog.connection.close()

    def read_on() -> list[dict[str, int]]:
        seen = []
        while not ended.is_set():
            try:
                with closing(psycopg.connect(warehouse_url(both), autocommit=True)) as connection:
                    seen.append(periods(connection, sales))
            except psycopg.Error:
                time.sleep(0.05)
        return seen

    first = opened()
    first.publish(KEYS)
    first.catalog.connection.close()
    with ThreadPoolExecutor(4) as pool:
        publishers = [pool.submit(publish_on, key) for key in (DETROIT, PARIS, ZURICH)]
        reader = pool.submit(read_on)
        try:
            wait_for(lambda: all(before >= 2 for before, _ in published.values()))
            time.sleep(random.Random(round_).random())
            pair.fail_over()
            kept = dict(reported)
            over.set()
            with closing(connect(both)) as connection:
                now = {path: batch.batch_id.millis for path, batch in Catalog(connection).current(sales.name).items()}
                assert connection.execute("show port").fetchone() == (str(pair.second.port),)
            assert all(now[path] >= batch_id for path, batch_id in kept.items())
            wait_for(lambda: all(after >= 2 for _, after in published.values()))
        finally:
            ended.set()
        for each in publishers:
            each.result()
        seen = reader.result()
    assert all(set(each) == {key.path for key in KEYS} for each in seen)
    with closing(connect(both)) as connection:
        now = batches(Catalog(connection), sales)
        assert periods(connection, sales) == now
    assert now == reported


@dataclass(frozen=True)
class ProjectOfBoth(TorturedProject):
    """A project whose settings name both servers, for its catalog and for Dagster."""

    urls: tuple[str, str] = ("", "")

    @property
    def environment(self) -> dict[str, str]:
        catalog, dagster = self.urls
        return super().environment | {"VARVE_POSTGRES_URL": catalog, "VARVE_DAGSTER_POSTGRES_URL": dagster}


@pytest.fixture
def project(pair: Pair) -> Iterator[ProjectOfBoth]:
    made = TorturedProject.make()
    yield ProjectOfBoth(made.folder, made.small_disk, (pair.url("varve"), pair.url("dagster")))
    made.end()


@pytest.mark.spark
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_runs_that_lose_their_server_fail_and_what_they_were_to_make_is_made_by_the_next(
    project: ProjectOfBoth, pair: Pair, both: Settings, round_: int
) -> None:
    model = Model()

    def send() -> None:
        for day in DAYS:
            model.landed[day] = model.numbered(day)
            project.send(day, model.landed[day])

    def due() -> Ended:
        return project.run("due")

    send()
    assert due().code == 0
    send()
    with ThreadPoolExecutor(1) as pool:
        interrupted = pool.submit(due)
        time.sleep(random.Random(f"run {round_}").uniform(4, 14))
        pair.fail_over()
        interrupted.result()
    problems = ["nothing was run"]
    for _ in attempts(240):
        ended = due()
        problems = [ended.output[-2_000:]] if ended.code else []
        if not problems:
            with closing(connect(both)) as connection:
                problems = model.problems_at_rest(current(connection))
        if not problems:
            break
    assert problems == []
    project.run("sweep", "--orphans-older-than", "0")
    project.run("repair")
    assert json_of(project.run("doctor", "--json"))["findings"] == []


def batches(catalog: Catalog, dataset: Dataset) -> dict[str, int]:
    """What is current by the catalog."""
    return {path: batch.batch_id.millis for path, batch in catalog.current(dataset.name).items()}


def wait_for(condition: object, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
