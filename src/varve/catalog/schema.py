"""The tables of the catalog: made, upgraded from an earlier version, or refused where their version does not fit ours.

`schema.sql` makes version 9. Each later version has one file, `upgrade_10.sql` and so on, which upgrades the version
before, with or without rows. A new catalog runs schema.sql and all upgrades, so new and old ones come to be the same.

From version 15 on, the first line of an upgrade says the oldest code that may use the tables afterwards:
`-- Version 17, code from 16 on: what it is for`. Code of version 16 then works on catalogs of versions 16 and 17. Such
code must not be ended for the upgrade; code that is older must (docs/upgrading.md).

Not here: what the tables hold (schema.sql) and what is asked of them (statements.py).
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field
from importlib import metadata, resources
from typing import TYPE_CHECKING

import psycopg

from varve.model.errors import UnfitCatalog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.resources.abc import Traversable

# The version that schema.sql makes.
FIRST_VERSION = 9
# The version that this Varve needs; each version above the first has a file `upgrade_<version>.sql`.
VERSION = 23
# Version 8 was made by eight files that are one now: its tables are those of version 9.
_SAME_AS_FIRST_VERSION = 8
# The first version that says which code may use it; before, only code of the very same version might.
_SAYS_WHO = 15
# Code that was here within so many seconds counts as going on.
USED_SECONDS = 600
# Its use is noted so often at most.
_NOTED_SECONDS = 60
# An upgrade waits so long for a lock: whoever comes after it waits for the same.
_LOCK_SECONDS = 3
_PATIENCE_SECONDS = 120

# Not to_regclass: after waiting for the lock it still answers from what this session had cached before.
HAS_SCHEMA = "select from pg_catalog.pg_tables where schemaname = 'varve' and tablename = 'schema_version'"
# Catalogs before version 15 have the first column only.
_STATE = """
    select v.version, coalesce((to_jsonb(v) ->> 'oldest')::int, v.version),
           coalesce((select jsonb_object_agg(key, extract(epoch from clock_timestamp()) - value::float8)
                     from jsonb_each_text(to_jsonb(v) -> 'used')), '{}'),
           has_table_privilege('varve.schema_version', 'update') and not pg_is_in_recovery(),
           coalesce(current_setting('varve.upgrades', true), '') = 'automatic'
    from varve.schema_version v
"""
_OTHER_OWNER = """
    select quote_ident(pg_get_userbyid(relowner)) from pg_catalog.pg_class
    where oid = 'varve.schema_version'::regclass and pg_get_userbyid(relowner) <> current_user
"""
_SET_VERSION = "update varve.schema_version set version = %(version)s"
_SET_BOTH = _SET_VERSION + ", oldest = greatest(oldest, %(oldest)s)"
# Whoever upgrades it holds the row: then it is noted the next time.
_NOTE_USE = """
    update varve.schema_version set used = used || jsonb_build_object(%s::text, extract(epoch from clock_timestamp()))
    where ctid in (select ctid from varve.schema_version for update skip locked)
"""
LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('varve schema', 0))"
_PATIENT = f"set local lock_timeout = '{_LOCK_SECONDS}s'"
_FIRST_LINE = re.compile(r"-- Version (\d+)(?:, code from (\d+) on)?\b[,:]?\s*(.*)")


@dataclass(frozen=True)
class Upgrade:
    """One step from the version before.

    Attributes:
        oldest: the oldest code that may use the catalog afterwards.
        what: what it is for, in a line.
    """

    version: int
    oldest: int
    what: str
    script: bytes = field(repr=False)


@dataclass(frozen=True)
class CatalogState:
    """What a catalog says of itself.

    Attributes:
        used: how many seconds ago code of each version was here.
        may_note: whether this role may write it, and this server: a standby is for those who only look.
        automatic: whether any process may upgrade it, as where Varve runs the server itself.
    """

    version: int
    oldest: int
    used: Mapping[int, float]
    may_note: bool
    automatic: bool

    def in_use(self, below: int) -> dict[int, float]:
        """The code below a version that was here of late: how many seconds ago, by version."""
        return {version: ago for version, ago in self.used.items() if version < below and ago < USED_SECONDS}


@dataclass(frozen=True)
class CatalogSchema:
    """The files that make the catalog's tables.

    Attributes:
        version: the version that this code needs at least.
        folder: where schema.sql and the upgrades are.
    """

    version: int = VERSION
    folder: Traversable = field(default_factory=lambda: resources.files("varve.catalog"))

    def ensure(self, connection: psycopg.Connection) -> None:
        """Make the catalog's tables where there are none, and note that code of this version uses them.

        Older tables are upgraded where Varve runs the server itself, or whoever runs it wants it so.

        Raises UnfitCatalog where the tables do not fit.
        """
        state = state_of(connection)
        if state is None:
            self._make(connection)
            return
        if state.version < self.version and state.automatic:
            self.migrate(connection, force=True)
            return
        self._refuse_unfit(connection, state)
        self._note_use(connection, state)

    def note_use(self, connection: psycopg.Connection) -> None:
        """Note that code of this version uses the tables still; whoever does for long says so again and again."""
        if (state := state_of(connection)) is not None:
            self._note_use(connection, state)

    def refuse_unfit(self, connection: psycopg.Connection) -> None:
        """Raise UnfitCatalog where the tables do not fit this version. Makes and changes nothing."""
        state = state_of(connection)
        if state is None:
            raise UnfitCatalog(
                f"{_place(connection)}: there is no catalog, so nothing was ever run there. `varve up` makes one; "
                "VARVE_HOME or VARVE_POSTGRES_URL name another place."
            )
        self._refuse_unfit(connection, state)

    def upgrades(self, version: int) -> list[Upgrade]:
        """The steps from a version to ours, in order."""
        return [self._upgrade(each) for each in range(max(version, FIRST_VERSION) + 1, self.version + 1)]

    def migrate(
        self, connection: psycopg.Connection, *, force: bool = False, before: Callable[[Upgrade], None] | None = None
    ) -> list[Upgrade]:
        """Run the upgrades that are missing, each in a transaction of its own; `before` is called before each.

        It waits for locks for a few seconds at a time, so that nobody waits long for it. A process that is killed
        leaves the catalog as the last whole step has made it. Several may call it at once.

        Raises UnfitCatalog where the tables do not fit; unless `force`, also before a step that code which was here of
        late would not survive.
        """
        state = state_of(connection)
        if state is None:
            self._make(connection)
            return []
        if state.version < _SAME_AS_FIRST_VERSION or state.version > self.version:
            self._refuse_unfit(connection, state)
        done = []
        for upgrade in self.upgrades(state.version):
            if before is not None:
                before(upgrade)
            if self._patiently(connection, upgrade, force=force):
                done.append(upgrade)
        return done

    def _note_use(self, connection: psycopg.Connection, state: CatalogState) -> None:
        if state.may_note and state.version >= _SAYS_WHO and state.used.get(self.version, 1e9) > _NOTED_SECONDS:
            connection.execute(_NOTE_USE, (str(self.version),))

    def _make(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute(LOCK_SCHEMA)
            # Again: whoever had the lock before us may have made the tables.
            if state_of(connection) is None:
                connection.execute(self._script("schema.sql"))
                for upgrade in self.upgrades(FIRST_VERSION):
                    _run(connection, upgrade)

    def _patiently(self, connection: psycopg.Connection, upgrade: Upgrade, *, force: bool) -> bool:
        """Run a step, unless somebody else has; returns whether it was run."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with connection.transaction():
                    connection.execute(_PATIENT)
                    connection.execute(LOCK_SCHEMA)
                    # Again: whoever had the lock before us may have run it.
                    state = state_of(connection)
                    assert state is not None
                    if state.version >= upgrade.version:
                        return False
                    if not force:
                        self._refuse_in_use(connection, state, upgrade)
                    _run(connection, upgrade)
                    return True
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() > deadline:
                    raise UnfitCatalog(
                        f"{_place(connection)}: version {upgrade.version} needs a lock that others held for "
                        f"{_PATIENCE_SECONDS} s. The catalog stays as it was before that version, and all goes on. "
                        "Run `varve migrate` again when less is going on."
                    ) from None
                time.sleep(random.uniform(0.2, 1.0))  # noqa: S311 - not a secret

    def _refuse_in_use(self, connection: psycopg.Connection, state: CatalogState, upgrade: Upgrade) -> None:
        if state.version < _SAYS_WHO:
            raise UnfitCatalog(
                f"{_place(connection)}: the Varve of catalog version {state.version} cannot use version "
                f"{upgrade.version}, and does not say whether it is going on. Nothing was changed. End its daemons, "
                "code servers and runs, then: varve migrate --force"
            )
        if in_use := state.in_use(upgrade.oldest):
            seen = " and ".join(f"{version} ({ago:.0f} s ago)" for version, ago in sorted(in_use.items()))
            raise UnfitCatalog(
                f"{_place(connection)}: version {upgrade.version} is for code from {upgrade.oldest} on, and code of "
                f"version {seen} was here. The catalog stays at version {state.version}, and all goes on. Deploy this "
                f"Varve everywhere, and run `varve migrate` {USED_SECONDS // 60} minutes after the last of the old "
                "code has ended; `--force` does not wait for that."
            )

    def _refuse_unfit(self, connection: psycopg.Connection, state: CatalogState) -> None:
        found = f"{_place(connection)}: the catalog has schema version {state.version}"
        if state.oldest > self.version:
            raise UnfitCatalog(
                f"{found}, which a newer Varve has made; {_this_varve()} knows version {self.version}. Nothing was "
                "read or changed. Install the newer Varve here too."
            )
        if state.version < _SAME_AS_FIRST_VERSION:
            raise UnfitCatalog(
                f"{found}, which is from before the first release; {_this_varve()} upgrades version "
                f"{_SAME_AS_FIRST_VERSION} and later. Nothing was read or changed. Upgrade the catalog with `varve up` "
                "of Varve 0.1 first, or let VARVE_HOME or VARVE_POSTGRES_URL name a place without a catalog."
            )
        if state.version < self.version:
            raise UnfitCatalog(
                f"{found}, and {_this_varve()} needs version {self.version}. Nothing was read or changed. Upgrade it: "
                "varve migrate"
            )

    def _upgrade(self, version: int) -> Upgrade:
        script = self._script(f"upgrade_{version}.sql")
        matched = _FIRST_LINE.match(script.decode("utf-8"))
        assert matched is not None, f"upgrade_{version}.sql does not say its version in its first line"
        assert int(matched[1]) == version
        return Upgrade(version, int(matched[2] or version), matched[3].rstrip("."), script)

    def _script(self, name: str) -> bytes:
        return self.folder.joinpath(name).read_bytes()


def state_of(connection: psycopg.Connection) -> CatalogState | None:
    """What the catalog says of itself; None where there is none."""
    if connection.execute(HAS_SCHEMA).fetchone() is None:
        return None
    row = connection.execute(_STATE).fetchone()
    assert row is not None
    version, oldest, used, may_note, automatic = row
    return CatalogState(version, oldest, {int(each): ago for each, ago in used.items()}, may_note, automatic)


def _run(connection: psycopg.Connection, upgrade: Upgrade) -> None:
    """Run a step, in a transaction, as the role that owns the catalog: what it makes is to be of that role too."""
    if (owner := connection.execute(_OTHER_OWNER).fetchone()) is not None:
        connection.execute(f"set local role {owner[0]}".encode())
    connection.execute(upgrade.script)
    statement = _SET_BOTH if upgrade.version >= _SAYS_WHO else _SET_VERSION
    connection.execute(statement, {"version": upgrade.version, "oldest": upgrade.oldest})


def _place(connection: psycopg.Connection) -> str:
    info = connection.info
    return f"database {info.dbname} on {info.host} port {info.port}"


def _this_varve() -> str:
    return f"Varve {metadata.version('varve')}"
