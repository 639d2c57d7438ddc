"""PostgreSQL on a disk that runs full during a load: plain words, nothing published, and the next build works."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from psycopg import sql

from tests.stores.warehouse.test_publish import KEYS, PARIS, Desk, periods
from tests.support.sales import sales_dataset
from varve.catalog.catalog import Catalog
from varve.model.dataset import StoreKind
from varve.model.errors import VarveError
from varve.services.postgres import connect, warehouse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

ROWS_BEYOND_THE_DISK = 100_000


@pytest.fixture
def small(settings: Settings) -> Iterator[tuple[Settings, Path]]:
    """A database whose new tables lie on a disk of three megabytes, and that disk."""
    # Not under pytest's own folders, which other users may not pass.
    disk, name = Path(tempfile.mkdtemp(prefix="varve-disk-")), f"full_{uuid.uuid4().hex[:8]}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", disk], check=True, timeout=30)
    try:
        if os.geteuid() == 0:
            os.chown(disk, pwd.getpwnam("pgserver").pw_uid, -1)
        with connect(settings) as administrator:
            administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            administrator.execute(
                sql.SQL("create tablespace {} location {}").format(sql.Identifier(name), sql.Literal(str(disk)))
            )
        url = urlsplit(warehouse_url(settings))._replace(path=f"/{name}").geturl()
        own = settings.model_copy(update={"postgres_url": url})
        with connect(own) as connection:
            # The catalog's own tables lie elsewhere.
            Catalog(connection).ensure_schema()
            connection.execute(sql.SQL("alter database {0} set default_tablespace = {0}").format(sql.Identifier(name)))
        yield own, disk
        with connect(settings) as administrator:
            administrator.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            administrator.execute(sql.SQL("drop tablespace {}").format(sql.Identifier(name)))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True, timeout=30)
        disk.rmdir()


def test_a_load_that_does_not_fit_says_so_and_loses_nothing(small: tuple[Settings, Path], tmp_path: Path) -> None:
    own, disk = small
    sales = sales_dataset(StoreKind.WAREHOUSE)
    with connect(own) as connection:
        catalog = Catalog(connection)
        desk = Desk(own, sales, tmp_path, catalog)
        desk.publish(KEYS)
        seen = periods(connection, sales)
        with pytest.raises(VarveError, match=r"the disk under PostgreSQL is full\. Nothing was published.* Free some"):
            desk.stage([PARIS], rows=ROWS_BEYOND_THE_DISK)
        assert periods(connection, sales) == desk.current() == seen
        # The run ends, and its locks with it.
        connection.execute("select pg_advisory_unlock_all()")
        subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True, timeout=30)
        second = desk.publish([PARIS]).batch_id.millis
        assert periods(connection, sales) == seen | {PARIS.path: second}
