"""The tables of the catalog: made, upgraded from an earlier version, or refused where their version does not fit ours.

`schema.sql` makes version 9. Each later version has one file, `upgrade_10.sql` and so on, which upgrades the version
before, with or without rows. A new catalog runs schema.sql and all upgrades, so new and old ones come to be the same.

Not here: what the tables hold (schema.sql) and what is asked of them (statements.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata, resources
from typing import TYPE_CHECKING

from varve.model.errors import UnfitCatalog

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import psycopg

# The version that schema.sql makes.
FIRST_VERSION = 9
# The version that this Varve needs; each version above the first has a file `upgrade_<version>.sql`.
VERSION = 14
# Version 8 was made by eight files that are one now: its tables are those of version 9.
_SAME_AS_FIRST_VERSION = 8

# Not to_regclass: after waiting for the lock it still answers from what this session had cached before.
HAS_SCHEMA = "select from pg_catalog.pg_tables where schemaname = 'varve' and tablename = 'schema_version'"
_VERSION = "select version from varve.schema_version"
_SET_VERSION = "update varve.schema_version set version = %s"
LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('varve schema', 0))"


@dataclass(frozen=True)
class CatalogSchema:
    """The files that make the catalog's tables.

    Attributes:
        version: the version to which a catalog is brought.
        folder: where schema.sql and the upgrades are.
    """

    version: int = VERSION
    folder: Traversable = field(default_factory=lambda: resources.files("varve.catalog"))

    def ensure(self, connection: psycopg.Connection) -> None:
        """Make the catalog's tables, or upgrade them; safe to call from several processes at once.

        All files run in one transaction, under a lock: a process that is killed leaves the catalog as it was.

        Raises UnfitCatalog where the catalog is newer than this Varve, or older than what it can upgrade.
        """
        if _current_version(connection) == self.version:
            return
        with connection.transaction():
            connection.execute(LOCK_SCHEMA)
            # Again: whoever had the lock before us may have made the tables.
            version = _current_version(connection)
            if version is None:
                connection.execute(self._script("schema.sql"))
                version = FIRST_VERSION
            elif version > self.version:
                raise UnfitCatalog(self._too_new(connection, version))
            elif version < _SAME_AS_FIRST_VERSION:
                raise UnfitCatalog(self._too_old(connection, version))
            for next_version in range(max(version, FIRST_VERSION) + 1, self.version + 1):
                connection.execute(self._script(f"upgrade_{next_version}.sql"))
            connection.execute(_SET_VERSION, (self.version,))

    def refuse_unfit(self, connection: psycopg.Connection) -> None:
        """Raise UnfitCatalog where the tables are not those of this version. Makes and changes nothing."""
        version = _current_version(connection)
        if version is None:
            raise UnfitCatalog(
                f"{_place(connection)}: there is no catalog, so nothing was ever run there. `varve up` makes one; "
                "VARVE_HOME or VARVE_POSTGRES_URL name another place."
            )
        if version > self.version:
            raise UnfitCatalog(self._too_new(connection, version))
        if version < self.version:
            raise UnfitCatalog(
                f"{_place(connection)}: the catalog has schema version {version}, and {_this_varve()} reads version "
                f"{self.version}. Nothing was read or changed. `varve up` upgrades it."
            )

    def _script(self, name: str) -> bytes:
        return self.folder.joinpath(name).read_bytes()

    def _too_new(self, connection: psycopg.Connection, version: int) -> str:
        return (
            f"{_place(connection)}: the catalog has schema version {version}, which a newer Varve has made; "
            f"{_this_varve()} knows version {self.version}. Nothing was read or changed. "
            "Install the newer Varve here too."
        )

    def _too_old(self, connection: psycopg.Connection, version: int) -> str:
        return (
            f"{_place(connection)}: the catalog has schema version {version}, which is from before the "
            f"first release; {_this_varve()} upgrades version {_SAME_AS_FIRST_VERSION} and later. Nothing was read or "
            "changed. Upgrade the catalog with `varve up` of Varve 0.1 first, or let VARVE_HOME or VARVE_POSTGRES_URL "
            "name a place without a catalog."
        )


def _current_version(connection: psycopg.Connection) -> int | None:
    """The version of the catalog's tables; None where there are none."""
    if connection.execute(HAS_SCHEMA).fetchone() is None:
        return None
    row = connection.execute(_VERSION).fetchone()
    assert row is not None
    return int(row[0])


def _place(connection: psycopg.Connection) -> str:
    info = connection.info
    return f"database {info.dbname} on {info.host} port {info.port}"


def _this_varve() -> str:
    return f"Varve {metadata.version('varve')}"
