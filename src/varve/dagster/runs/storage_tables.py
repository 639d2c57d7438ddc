"""What commands ask of Dagster's storage, by SQL: whether runs are unfinished, and the keys of dynamic sets.

Dagster is a second of imports, and most of the time no run is unfinished. Its tables are read only where dagster.yaml
names Varve's own storage; tests/cli/test_light_commands.py compares them with Dagster's own answers.

Not here: what a run is on (automation/reconciling.py).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import yaml

from varve.dagster.instance import dagster_home
from varve.project import Project
from varve.services.postgres import dagster_libpq_url
from varve.services.sessions import reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings

# Every state that is not of an ended run, so that one which Dagster adds counts too.
_ENDED = ["SUCCESS", "FAILURE", "CANCELED"]
_ANY_UNFINISHED = "select exists (select from runs where status <> all(%s))"
_KEYS = "select partition from dynamic_partitions where partitions_def_name = %s order by id"


@dataclass(frozen=True)
class StorageTables:
    """Dagster's tables over a connection to its database."""

    connection: psycopg.Connection

    def has_unfinished_runs(self) -> bool:
        """Return whether any run, of whichever job, has not ended."""
        row = self.connection.execute(_ANY_UNFINISHED, [_ENDED]).fetchone()
        return row is None or bool(row[0])

    def keys_of_set(self, name: str) -> list[str]:
        """Return the keys of a set, in the order in which they were added: as Dagster's instance does."""
        return [key for (key,) in self.connection.execute(_KEYS, [name])]


@contextmanager
def opened_tables(settings: Settings) -> Iterator[StorageTables | None]:
    """Open Dagster's storage; None where it is not Varve's own, has no tables yet, or cannot be reached by SQL.

    Raises NoProject without a dagster.yaml.
    """
    if not _is_own(settings):
        yield None
        return
    with ExitStack() as stack:
        try:
            # Dagster's storage may be reached through a pooler, whose sessions are Dagster's own.
            connection = stack.enter_context(reading(dagster_libpq_url(settings), application="varve plan"))
        except psycopg.Error:
            # Dagster's own error says more.
            yield None
            return
        row = connection.execute("select to_regclass('runs'), to_regclass('dynamic_partitions')").fetchone()
        yield StorageTables(connection) if row is not None and None not in row else None


def _is_own(settings: Settings) -> bool:
    """Whether dagster.yaml names Varve's storage, with the settings of this project."""
    file = dagster_home(settings) / "dagster.yaml"
    if not file.is_file():
        return False
    declared = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    storage = (declared.get("storage") or {}).get("custom") or {}
    own = ("varve.dagster.internal", "VarveDagsterStorage")
    if (storage.get("module"), storage.get("class")) != own:
        return False
    return Project.find((storage.get("config") or {}).get("project") or None).settings.project == settings.project
