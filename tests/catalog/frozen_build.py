"""A run in a process of its own, for a test to freeze: begins a build with its heart beating, and publishes when told.

    python frozen_build.py DATASET RUN

Prints `staged`, waits for a line, and prints how the publish ended.
"""

from __future__ import annotations

import dataclasses
import sys

from tests.support.sales import PARIS, sales_dataset
from varve.catalog.catalog import Catalog
from varve.dagster.leases.heartbeat import Heartbeats
from varve.dagster.runs.failures import explained
from varve.model.batch import StagedBatch
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.services.postgres import connect
from varve.services.settings import Settings
from varve.stores.open_build import OpenBuild


def main(name: str, run_id: str) -> None:
    settings, hearts = Settings(), Heartbeats()
    hearts.begin(settings, run_id)
    catalog = Catalog(connect(settings, application="varve frozen"))
    build = catalog.begin(
        dataclasses.replace(sales_dataset(StoreKind.LAKE), name=name), [PARIS], run_id=run_id, code_version=""
    )
    catalog.staged(build, [StagedBatch(PARIS, "/nowhere", 1, 1, 1)])
    _say("staged")
    sys.stdin.readline()
    try:
        with explained(OpenBuild(build, catalog), settings):
            catalog.publish(build)
        _say("published")
    except VarveError as error:
        _say(str(error))
    hearts.stop()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


main(*sys.argv[1:])
