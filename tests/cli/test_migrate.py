"""`varve migrate`: on a server of one's own nothing else upgrades the catalog."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.documents.pages import blocks
from tests.support.environment import clean_environment
from tests.support.prepared import run_prepared
from tests.support.project import ROOT
from varve.catalog.schema import VERSION, CatalogSchema

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from varve.services.settings import Settings

VARVE = str(Path(sys.executable).parent / "varve")
HERE = "tests/cli/test_migrate.py"
# The last version that does not say which code may use it.
OLD = 14


@pytest.fixture
def varve(settings: Settings, fresh_database: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `varve WORDS` on a server of one's own whose catalog is of an old version."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        CatalogSchema(OLD).ensure(connection)
    environment = clean_environment() | {
        "VARVE_POSTGRES_URL": fresh_database, "VARVE_HOME": str(settings.home_dir), "VARVE_PROJECT": str(ROOT),
    }  # fmt: skip
    return lambda *words: run_prepared(VARVE, *words, cwd=ROOT, env=environment)


def version_of(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((version,),) = connection.execute("select version from varve.schema_version").fetchall()
    return int(version)


def test_only_migrate_upgrades_the_catalog_of_a_server_of_ones_own(
    varve: Callable[..., subprocess.CompletedProcess[str]], fresh_database: str
) -> None:
    for words in (["backfill", "list"], ["history", "flights.departures"], ["env", "list"]):
        refused = varve(*words)
        assert refused.returncode == 1, words
        message = " ".join(refused.stderr.split())
        assert f"has schema version {OLD}, and Varve" in message
        assert message.endswith(f"needs version {VERSION}. Nothing was read or changed. Upgrade it: varve migrate")
    assert version_of(fresh_database) == OLD

    (dry_run, migrate) = [c.split()[1:] for block in blocks("console") if block.runner == HERE for c in block.commands]
    shown = varve(*dry_run)
    assert shown.returncode == 0
    assert "15: upgrades without a stop" in shown.stdout
    assert "16: to which project each dataset belongs" in shown.stdout
    assert "Nothing was changed" in shown.stdout
    values = json.loads(varve(*dry_run, "--json").stdout)
    assert (values["before"], values["version"], [step["version"] for step in values["steps"]]) == (
        OLD, VERSION, list(range(OLD + 1, VERSION + 1)),
    )  # fmt: skip
    assert version_of(fresh_database) == OLD

    # The version before says of nobody whether he goes on.
    refused = varve(*migrate)
    assert refused.returncode == 1
    assert "varve migrate --force" in refused.stderr
    assert version_of(fresh_database) == OLD
    done = varve(*migrate, "--force")
    assert done.returncode == 0
    assert f"The catalog has version {VERSION}, which this Varve needs." in done.stdout
    assert version_of(fresh_database) == VERSION

    assert varve("backfill", "list").returncode == 0
    assert "which this Varve needs: nothing to do." in varve(*migrate).stdout


def test_a_step_for_code_of_before_needs_no_stop(
    varve: Callable[..., subprocess.CompletedProcess[str]], fresh_database: str
) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        CatalogSchema(VERSION - 1).migrate(connection, force=True)
        # Code of that version is going on.
        CatalogSchema(VERSION - 1).ensure(connection)
    assert version_of(fresh_database) == VERSION - 1
    done = varve("migrate")
    assert done.returncode == 0, done.stderr
    assert version_of(fresh_database) == VERSION


def test_code_of_the_version_before_works_on_a_newer_catalog_and_says_so(
    varve: Callable[..., subprocess.CompletedProcess[str]], fresh_database: str
) -> None:
    varve("migrate", "--force")
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("update varve.schema_version set version = version + 1")
    assert varve("backfill", "list").returncode == 0
    assert "a newer Varve has made it, and this one may use it: nothing to do." in varve("migrate").stdout
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("update varve.schema_version set version = version + 1, oldest = version + 1")
    for words in (["backfill", "list"], ["migrate"], ["migrate", "--dry-run"]):
        refused = varve(*words)
        assert refused.returncode == 1
        assert "which a newer Varve has made" in " ".join(refused.stderr.split())
