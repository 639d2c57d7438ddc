"""The next versions of the catalog, as newer releases may make them: what is there stays, and something is added.

Not here: how a catalog is upgraded (varve/catalog/schema.py).
"""

from __future__ import annotations

import shutil
from contextlib import closing
from importlib import resources
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.schema import CatalogSchema, state_of

if TYPE_CHECKING:
    from pathlib import Path

# On the tables that every publish, every look of a sensor and every capture uses.
_STEPS = (
    "alter table varve.batch add column added_{n} text; update varve.batch set added_{n} = run_id;",
    "alter table varve.current add column added_{n} bigint not null default {n};",
    "create index batch_added_{n} on varve.batch (run_id, dataset);",
    "alter table varve.dataset add column added_{n} jsonb; alter table varve.lease add column added_{n} int default 1;",
    "create table varve.added_{n} as select dataset, partition, batch_id from varve.current;",
)


def upgrade(folder: Path, url: str, which: float) -> int:
    """Upgrade the catalog by one version, which code of the present one goes on with; returns the version."""
    if not folder.exists():
        with resources.as_file(resources.files("varve.catalog")) as files:
            shutil.copytree(
                files, folder, ignore=lambda _, names: [name for name in names if not name.endswith(".sql")]
            )
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        state = state_of(connection)
        assert state is not None
        version = state.version + 1
        step = _STEPS[int(which * len(_STEPS))].format(n=version)
        first_line = f"-- Version {version}, code from {state.oldest} on: of a torture.\n"
        (folder / f"upgrade_{version}.sql").write_text(first_line + step, encoding="utf-8")
        CatalogSchema(version, folder).migrate(connection)
    return version
