"""Who may do what: the owner publishes, the reader selects, and neither can do the other's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import sql
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.stores.warehouse.test_projection import BIGINT, Shop, dataset, key
from varve.catalog.catalog import Catalog
from varve.model.errors import ServiceUnavailable, VarveError
from varve.model.schema import Column, Schema
from varve.services.postgres import connect, warehouse_url
from varve.stores.warehouse import migrate, publish
from varve.stores.warehouse.tables import roles, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings


@pytest.fixture
def database(settings: Settings) -> Iterator[str]:
    """The URL of a database of its own, whose roles and catalog are there and belong to the owner."""
    name = f"roles_{uuid.uuid4().hex[:8]}"
    with connect(settings) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    parts = urlsplit(warehouse_url(settings))
    url = parts._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as administrator:
        for role in (roles.OWNER, roles.READER):
            if roles.exists(administrator, role):
                administrator.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
    with psycopg.connect(url, autocommit=True) as administrator:
        _drop_roles(settings)
        roles.ensure_roles(administrator, connections=2, statement_seconds=0.4)
    yield url
    with connect(settings) as administrator:
        administrator.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
    _drop_roles(settings)


def _drop_roles(settings: Settings) -> None:
    with connect(settings) as administrator:
        for role in (roles.OWNER, roles.READER):
            if roles.exists(administrator, role):
                administrator.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


def as_role(url: str, role: str) -> str:
    return url.replace("://postgres@", f"://{role}@")


@pytest.fixture
def owner(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(as_role(database, roles.OWNER), autocommit=True) as opened:
        Catalog(opened).ensure_schema()
        yield opened


def test_the_owner_publishes_and_the_reader_sees_the_view_and_nothing_else(
    database: str, owner: psycopg.Connection
) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(1): [("pen", 1)]})
    shop.publish(sales, {key(1): [("pen", 2)], key(2): [("ink", 3)]})
    (table,) = {batch.location for batch in shop.catalog.current(sales.name).values() if "01_01" in batch.location}
    with psycopg.connect(as_role(database, roles.READER), autocommit=True) as reader:
        assert reader.execute(f"select sum(sold) from {sales}".encode()).fetchone() == (5,)
        for forbidden in (
            "select * from varve.batch", "select * from varve.loaded", f"select * from {sales.db}_periods.{table}",
            f"create table {sales.db}.mine (a int)", f"delete from {sales}", f"drop view {sales}",
        ):  # fmt: skip
            with pytest.raises(
                (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction,
                 psycopg.errors.ObjectNotInPrerequisiteState)
            ):  # fmt: skip
                reader.execute(forbidden.encode())
        reader.execute("set default_transaction_read_only = off")
        for forbidden in (f"create table {sales.db}.mine (a int)", f"drop view {sales}", f"truncate {sales}"):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
                reader.execute(forbidden.encode())


def test_what_the_reader_may_not_see_any_more_it_does_not_see_after_a_migration(
    database: str, owner: psycopg.Connection
) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(1): [("pen", 1)]})
    sees = "select has_table_privilege(%s, %s, 'select')"
    assert owner.execute(sees, (roles.READER, sales.name)).fetchone() == (True,)
    owner.execute(f"revoke select on {sales} from {roles.READER}".encode())
    narrower = replace(sales, schema=Schema(sales.schema.columns[1:]))
    assert migrate.migrate(shop.catalog, narrower, seconds=10, dry_run=False).changes
    assert owner.execute(sees, (roles.READER, sales.name)).fetchone() == (False,)
    # What it may see, it sees afterwards.
    owner.execute(f"grant select on {sales} to {roles.READER}".encode())
    assert migrate.migrate(shop.catalog, sales, seconds=10, dry_run=False).changes
    assert owner.execute(sees, (roles.READER, sales.name)).fetchone() == (True,)


@pytest.fixture
def analyst(database: str) -> Iterator[str]:
    """A role of somebody who makes views of his own."""
    name = f"Analyst {uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        yield name
        statement = sql.SQL("drop owned by {0} cascade; drop role {0}").format(sql.Identifier(name))
        administrator.execute(statement)


@pytest.mark.parametrize("of_his_own", [False, True])
def test_a_view_of_somebody_else_is_named_with_its_owner_and_made_again_where_we_may_act_for_him(
    database: str, owner: psycopg.Connection, analyst: str, *, of_his_own: bool
) -> None:
    sales, shop, his = dataset(), Shop(Catalog(owner)), sql.Identifier(analyst)
    shop.publish(sales, {key(1): [("pen", 1)]})
    owner.execute(sql.SQL("grant usage, create on schema {} to {}").format(sql.Identifier(sales.db), his))
    owner.execute(sql.SQL("grant select on {} to {}").format(view.view_name(sales), his))
    schema = f"{sales.db}_reports" if of_his_own else sales.db
    with psycopg.connect(database, autocommit=True) as administrator:
        if of_his_own:
            administrator.execute(sql.SQL("create schema {} authorization {}").format(sql.Identifier(schema), his))
        administrator.execute(sql.SQL("set role {}").format(his))
        administrator.execute(f"create view {schema}.totals as select sum(sold) as total from {sales}".encode())
    wider = replace(sales, schema=Schema((sales.schema.columns[0], Column("sold", BIGINT))))
    reason = f"permission denied for schema {schema}" if of_his_own else f'must be able to SET ROLE "{analyst}"'
    with pytest.raises(VarveError) as refused:
        migrate.migrate(shop.catalog, wider, seconds=10, dry_run=True)
    assert str(refused.value) == (
        f"{sales}: varve_owner may not make its view again with all that depends on it: {reason}. {schema}.totals "
        f'belongs to "{analyst}". Nothing was changed. Let an administrator run `grant "{analyst}" to varve_owner`, '
        "and do this again; or let the owners drop their views over it, and create them anew afterwards."
    )
    assert shop.rows(sales, "sold, pg_typeof(sold)::text, 1") == [(1, "integer", 1)]

    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(sql.SQL("grant {} to varve_owner").format(his))
    assert migrate.migrate(shop.catalog, wider, seconds=10, dry_run=False).changes == ("sold: integer -> bigint",)
    owners = "select viewowner from pg_views where schemaname = %s and viewname = 'totals'"
    assert owner.execute(owners, (schema,)).fetchall() == [(analyst,)]


def test_a_publish_names_who_owns_the_views_that_it_may_not_replace(
    database: str, owner: psycopg.Connection, analyst: str
) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(1): [("pen", 1)]})
    give_views(database, sales.db, analyst)
    with pytest.raises(VarveError) as refused:
        shop.publish(sales, {key(1): [("pen", 2)]})
    assert f'belongs to "{analyst}". Nothing was changed.' in str(refused.value)
    assert f'Let an administrator run `grant "{analyst}" to varve_owner`' in str(refused.value)
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(sql.SQL("grant {} to varve_owner").format(sql.Identifier(analyst)))
    shop.publish(sales, {key(1): [("pen", 3)]})
    # A view reads with the rights of its owner.
    give_views(database, sales.db, roles.OWNER)
    assert [row[3] for row in shop.rows(sales)] == [3]


def give_views(database: str, schema: str, role: str) -> None:
    """Give the views of a schema, and the leaves under them, to a role."""
    views = "select schemaname, viewname from pg_views where schemaname in (%s, %s)"
    with psycopg.connect(database, autocommit=True) as administrator:
        for names in administrator.execute(views, (schema, f"{schema}_periods")).fetchall():
            theirs = sql.SQL("alter view {} owner to {}").format(sql.Identifier(*names), sql.Identifier(role))
            administrator.execute(theirs)


def test_the_readers_limits_hold(database: str, owner: psycopg.Connection) -> None:
    assert owner.info.user == roles.OWNER
    url = as_role(database, roles.READER)
    with psycopg.connect(url, autocommit=True) as opened, psycopg.connect(url, autocommit=True):
        with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
            psycopg.connect(url)
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            opened.execute("select pg_sleep(30)")


def test_a_role_that_cannot_see_snapshots_publishes_nothing(database: str, owner: psycopg.Connection) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(1): [("pen", 1)]})
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute("revoke pg_read_all_stats from varve_owner")
    with pytest.raises(VarveError, match="Run: grant pg_read_all_stats to varve_owner"):
        shop.publish(sales, {key(1): [("pen", 2)]})
    assert [row[3] for row in shop.rows(sales)] == [1]


def test_the_owner_waits_for_a_readers_snapshot_as_the_superuser_does(database: str, owner: psycopg.Connection) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(1): [("pen", 1)]})
    with psycopg.connect(as_role(database, roles.READER), application_name="the reader") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1")
        build = shop.stage(sales, {key(1): [("pen", 2)]})
        with pytest.raises(VarveError, match="the reader"):
            publish.publish(shop.catalog, build, seconds=0.1)


def test_roles_are_made_once_and_what_was_changed_of_them_stays(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute("alter role varve_reader connection limit 7")
        assert roles.ensure_roles(administrator, connections=2, statement_seconds=1) == []
        limit = administrator.execute("select rolconnlimit from pg_roles where rolname = 'varve_reader'").fetchone()
    assert limit == (7,)


def test_readers_come_through_a_pooler_in_transaction_mode_and_a_writer_is_refused_there(
    settings: Settings, database: str, owner: psycopg.Connection
) -> None:
    sales, shop = dataset(), Shop(Catalog(owner))
    shop.publish(sales, {key(day): [("pen", 1)] for day in (1, 2)})
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute("alter role varve_reader set statement_timeout = '60s'")
    done = threading.Event()

    def read(url: str) -> int:
        reads = 0
        # Prepared statements are a session's, which a reader does not have there.
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as reader:
            while not done.is_set() or reads == 0:
                rows = reader.execute(f"select day, sold from {sales} order by day".encode()).fetchall()
                assert len(rows) == 2
                assert rows[0][1] == rows[1][1]
                reads += 1
        return reads

    with pooler(database) as url:
        # Eight of them over the two connections that the role may have.
        with ThreadPoolExecutor(8) as pool:
            reading = [pool.submit(read, url) for _ in range(8)]
            try:
                for sold in range(2, 7):
                    shop.publish(sales, {key(day): [("pen", sold)] for day in (1, 2)})
            finally:
                done.set()
            assert all(reader.result(60) > 0 for reader in reading)
        pooled = settings.model_copy(update={"postgres_url": url.replace("varve_reader@", "varve_owner@")})
        with pytest.raises(ServiceUnavailable, match=r"leads to a connection pooler, .* name the server itself"):
            connect(pooled)


@contextmanager
def pooler(url: str, role: str = "varve_reader") -> Iterator[str]:
    """The URL of a pgbouncer before a database, for a role; at most two connections go on to the server."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program is not None, "pgbouncer is not installed; `make test` does it (Debian: apt-get install pgbouncer)"
    parts = urlsplit(url)
    name, sockets = parts.path[1:], parse_qs(parts.query)["host"][0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="varve-") as folder:
        Path(folder).chmod(0o755)
        users, configuration = Path(folder, "users"), Path(folder, "pgbouncer.ini")
        users.write_text(f'"{role}" ""\n"varve_owner" ""\n')
        configuration.write_text(
            f"[databases]\n{name} = host={sockets} dbname={name}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
            f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 2\n"
        )
        # It does not run as root, and the server's socket is its owner's.
        user = ["--user=pgserver"] if os.geteuid() == 0 else []
        running = subprocess.Popen([program, "--quiet", *user, configuration])
        try:
            pooled = f"postgresql://{role}@127.0.0.1:{port}/{name}?sslmode=disable"
            wait_for_answer(pooled)
            yield pooled
        finally:
            running.terminate()
            running.wait(30)


@retry(
    retry=retry_if_exception_type(psycopg.OperationalError), stop=stop_after_delay(30), wait=wait_fixed(0.05),
    reraise=True,
)  # fmt: skip
def wait_for_answer(url: str) -> None:
    psycopg.connect(url).close()
