"""`varve warehouse ...` as a person types it, on a database of its own."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from psycopg import sql
from typer.testing import CliRunner

from assets.flights import WEEKLY_DELAYS
from tests.stores.warehouse.test_projection import Shop
from varve.catalog.catalog import Catalog
from varve.cli.app import app
from varve.model.errors import VarveError
from varve.model.partitions.key import PartitionKey
from varve.model.schema import ColumnType, Schema
from varve.services.postgres import connect, warehouse_url
from varve.stores.warehouse.tables.naming import periods_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

WEEK = PartitionKey.of(week=dt.date(2013, 1, 7), origin="EWR")


@pytest.fixture
def own(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    name = f"cli_{uuid.uuid4().hex[:8]}"
    with connect(settings) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    url = urlsplit(warehouse_url(settings))._replace(path=f"/{name}").geturl()
    monkeypatch.setenv("VARVE_POSTGRES_URL", url)
    yield settings.model_copy(update={"postgres_url": url})
    with connect(settings) as administrator:
        administrator.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def printed_by(*words: str) -> str:
    done = CliRunner().invoke(app, ["warehouse", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_migrate_tells_the_exact_sql_first_and_then_does_it(own: Settings) -> None:
    narrow = [
        replace(column, type=ColumnType.INT) if column.name == "days" else column
        for column in WEEKLY_DELAYS.schema.columns
    ]
    with connect(own) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        shop = Shop(catalog)
        shop.publish(replace(WEEKLY_DELAYS, schema=Schema(tuple(narrow))), {WEEK: [("UA", 7, 1, 0, 12)]})

        dry_run_output = printed_by("migrate", "flights.weekly_delays", "--dry-run")
        assert 'drop view "flights"."weekly_delays";' in dry_run_output
        assert "days: integer -> bigint. That is what would be done; nothing was changed." in dry_run_output
        (before,) = connection.execute("select pg_typeof(days)::text from flights.weekly_delays").fetchone() or ("",)
        assert before == "integer"

        done = json.loads(printed_by("migrate", "flights.weekly_delays", "--json"))
        assert done["changes"] == ["days: integer -> bigint"]
        rows = connection.execute("select week, carrier, days, pg_typeof(days)::text from flights.weekly_delays")
        assert rows.fetchall() == [(WEEK["week"], "UA", 7, "bigint")]
    assert printed_by("migrate", "flights.weekly_delays") == "The view of flights.weekly_delays is as it is declared."


def test_a_dataset_that_is_not_in_the_warehouse_is_refused_with_those_that_are(own: Settings) -> None:
    with pytest.raises(
        VarveError,
        match=r"flights\.departures is no dataset of the warehouse; those are flights\.monthly_fleet, flights\.week",
    ):
        printed_by("migrate", "flights.departures")


def test_compact_says_that_there_is_nothing_to_do(own: Settings) -> None:
    assert printed_by("compact", "flights.weekly_delays") == "flights.weekly_delays has no period to put together."


def test_roles_are_told_without_being_made(own: Settings) -> None:
    statements = printed_by("roles", "--dry-run")
    assert "create role varve_reader login" in statements.replace('"', "") or statements == "Both roles are there."


def test_the_commands_over_batches_work_on_the_warehouse_as_on_the_lake(own: Settings) -> None:
    def varve(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    name = "flights.weekly_delays"
    with connect(own) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        shop = Shop(catalog)
        first, second, third = [
            shop.publish(WEEKLY_DELAYS, {WEEK: [("UA", 7, flights, 0, 12)]}).batch_id for flights in (1, 2, 3)
        ]

        def seen() -> list[tuple[int]]:
            return connection.execute("select flights from flights.weekly_delays").fetchall()

        kept = json.loads(varve("history", name, "--json"))
        assert len(kept) == len({first, second, third})
        varve("pin", name, "week=2013-01-07", "--batch", str(first), "--reason", "the audit")
        varve("rollback", name, "week=2013-01-07", "origin=EWR", "--to", str(second))
        assert seen() == [(2,)]
        varve("sweep", name, "--older-than", "0d", "--keep-last", "0")
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'flights_periods'").fetchone()
        # Two tables stay, of the current batch and of the pinned one; the third is gone.
        assert tables == (2,)
        assert seen() == [(2,)]
        assert "All is well" in varve("doctor", name)
        varve("rollback", name, "--to", str(first))
        assert seen() == [(1,)]
        connection.execute("drop view flights.weekly_delays")
        varve("doctor", name, code=1)
        varve("repair", name)
        assert seen() == [(1,)]
        assert "All is well" in varve("doctor", name)


def test_the_doctor_says_of_a_lost_batch_whether_it_is_the_current_one(own: Settings) -> None:
    with connect(own) as connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        shop = Shop(catalog)
        tables = []
        for days in (7, 8):
            shop.publish(WEEKLY_DELAYS, {WEEK: [("UA", days, 1, 0, 12)]})
            tables.append(catalog.current(WEEKLY_DELAYS.name)[WEEK.path].location)
        for table in tables:
            schema = periods_schema(WEEKLY_DELAYS)
            connection.execute(sql.SQL("drop table {} cascade").format(sql.Identifier(schema, table)))
    done = CliRunner().invoke(app, ["doctor", WEEKLY_DELAYS.name, "--json"])
    remedies = {row["problem"].split()[2]: row["remedy"] for row in json.loads(done.output)["findings"]}
    assert remedies[tables[0]].startswith("It is not current in production, so that nothing is to be run again")
    assert remedies[tables[1]].endswith("or run the partition again.")
