"""`varve check` asks the server for the roles of GRANT, and shows what is not there at its place."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from tests.cli.shop import Shop
from varve.dagster.assets.sql_folders import forget_files
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.workbench import Workbench


@pytest.mark.spark
def test_a_role_that_the_server_has_not_is_told_at_its_place(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, connection: psycopg.Connection
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    role = f"analysts_{uuid.uuid4().hex[:8]}"
    query = f"GRANT SELECT TO\n    {role}\nAS SELECT product FROM shop.sales WHERE sales.day = today;"
    shop.sql("products", query, store="WAREHOUSE")
    forget_files()
    refused = shop.run("check", "--no-spark").exception
    assert isinstance(refused, SqlErrors)
    (problem,) = refused.problems
    assert problem.place.endswith("products.sql:9:5")
    assert problem.message.startswith(f"the server has no role {role}.")
    assert f'Its administrator creates it: create role "{role}";' in problem.message
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        done = shop.run("check", "--no-spark")
        assert done.exception is None
        assert "2 SQL datasets, no problems." in done.output
    finally:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
