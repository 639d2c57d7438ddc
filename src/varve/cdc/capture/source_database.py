"""The source of changes: the PostgreSQL database of an application, queried by ordinary connections.

The user needs REPLICATION and the right to read the table, and must own the table to publish it.

Not here: what is done with the answers (capture.py).
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from varve.cdc.captured_table import NeedsResnapshot, SourceColumn, SourceRefused, SourceTable
from varve.cdc.event import parse_lsn
from varve.model.errors import ServiceUnavailable
from varve.services.secrets import redacted
from varve.services.sessions import FIRST_NAMES, NO_LIMIT, kept_alive, open_session, settings_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.pq.abc import PGconn

    from varve.cdc.captured_table import CapturedTable

# The text format of captured values must not depend on the settings of the source.
_SESSION = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=1 "
    "-c lc_monetary=C -c statement_timeout=0 "
    # Names of types, functions and tables (regclass) must not depend on the search path either. A policy that hides
    # rows from us must be an error, not a smaller table.
    "-c search_path=pg_catalog -c row_security=off "
    # A limit that the source sets for its users must not end a session that waits or that holds a snapshot.
    "-c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0 "
    "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed"
)
# From this version on a publication can contain stored generated columns; no version publishes virtual ones.
GENERATED_PUBLISHED_SINCE = 180_000
_SERVER = """
    select system_identifier::text, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
    from pg_control_system()
"""
_TABLE = """
    select c.oid::bigint, c.relreplident::text, c.relkind::text, c.relpersistence::text,
           c.relfilenode::bigint, c.xmin::text::bigint, c.relnatts::int
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = split_part(%s, '.', 1) and c.relname = substr(%s, strpos(%s, '.') + 1)
"""
# Where these catalog entries differ from before, some changes may not have been published for a while.
_PUBLISHED = """
    select concat_ws('/', p.oid, p.xmin, r.oid, r.xmin)
    from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
    where p.pubname = %s and r.prrelid = %s
"""
_WITH_GENERATED = " with (publish_generated_columns = stored)"
_FILENODE_NOW = "select pg_relation_filenode(%s::oid)::bigint"
_COLUMNS = """
    select attname::text, attnum::int, format_type(atttypid, null), atttypmod,
           array(
               -- The types that the text of a value depends on: of elements, ranges and domains, and the parts of
               -- composite types.
               with recursive used (oid) as (
                   select atttypid
                   union
                   select inner_type.oid from used join pg_type t on t.oid = used.oid cross join lateral (
                       select t.typelem union all select t.typbasetype
                       union all select p.atttypid from pg_attribute p
                                 where p.attrelid = t.typrelid and p.attnum > 0 and not p.attisdropped
                       -- Servers before PostgreSQL 14 have no multiranges.
                       union all select r.rngsubtype from pg_range r
                                 where t.oid in (r.rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)
                   ) inner_type (oid)
                   where inner_type.oid <> 0
               )
               select label from (
                   select 0, t.oid, format('%%s %%s', t.oid, array(
                       select p.attnum from pg_attribute p
                       where p.attrelid = t.typrelid and p.attnum > 0 and not p.attisdropped order by p.attnum))
                   from pg_type t where t.typrelid <> 0 and t.oid in (select oid from used)
                   union all
                   select 1, e.oid, e.enumlabel::text from pg_enum e where e.enumtypid in (select oid from used)
               ) labels (place, oid, label)
               order by place, oid
           ),
           atttypid::bigint, attgenerated::text,
           -- What rows that are older than the column have in it, as an array of one. The type of its elements is not
           -- known here; a text of some types (box) is not one element for an array of texts.
           case when atthasmissing then attmissingval::text::text[] end,
           xmin::text::bigint
    from pg_attribute
    where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""
_KEY = """
    select array_agg(a.attname::text order by k.place), bool_and(i.indimmediate) from pg_index i
    cross join unnest(i.indkey) with ordinality k (attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = %s and case when %s then i.indisreplident else i.indisprimary end and k.place <= i.indnkeyatts
    group by i.indexrelid
"""
_SLOT = """
    select confirmed_flush_lsn::text, wal_status, safe_wal_size, active,
           pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, plugin
    from pg_replication_slots where slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class Server:
    """The identity of a server: an LSN is valid only on this server and on this timeline."""

    system_identifier: str
    timeline: int


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot, which keeps the source from discarding its log before we have read it.

    Attributes:
        confirmed: the LSN up to which we have confirmed that everything is durable.
        retained: how many bytes of log it keeps at the source.
        safe: how many bytes may still be written before the source invalidates it; None: the source never does.
    """

    confirmed: int
    wal_status: str
    safe: int | None
    active: bool
    retained: int

    @property
    def scarce(self) -> bool:
        """Whether the source may invalidate the slot soon: fewer bytes are left than it keeps already."""
        return self.wal_status in {"unreserved", "lost"} or (self.safe is not None and self.safe < self.retained)


@dataclass(frozen=True)
class SourceDatabase:
    """A source database by its libpq URL."""

    url: str = field(repr=False)

    def connect(self) -> psycopg.Connection:
        """An autocommit connection with fixed text formats. Raises ServiceUnavailable."""
        try:
            return open_session(
                self.url,
                application="varve cdc",
                wanted={"search_path": "pg_catalog"},
                connecting={
                    "options": self._options,
                    # The server converts texts to this encoding, also in messages of its log.
                    "client_encoding": "UTF8",
                    # A source whose machine is gone does not even close the connection.
                    "keepalives_idle": 30, "tcp_user_timeout": 60_000,
                },
            )  # fmt: skip
        except psycopg.OperationalError as error:
            raise ServiceUnavailable(
                f"the source of changes (VARVE_SOURCE_URL) cannot be reached: {redacted(str(error).strip())} "
                "Nothing was changed."
            ) from error

    def connect_for_slot(self) -> PGconn:
        """A replication connection, which can create a slot with its snapshot. Raises ServiceUnavailable."""
        text = make_conninfo(
            self.url, replication="database", connect_timeout=10, application_name="varve cdc", options=self._options,
            **kept_alive(self.url),
        )  # fmt: skip
        connection = pq.PGconn.connect(text.encode())
        if connection.status != pq.ConnStatus.OK:
            error_message = redacted(connection.error_message.decode().strip())
            connection.finish()
            raise ServiceUnavailable(
                f"the source gives no replication connection: {error_message} The user needs REPLICATION, and a line "
                "in pg_hba.conf; the server a free place (max_wal_senders). Nothing was changed."
            )
        for setting in (NO_LIMIT, FIRST_NAMES, settings_statement()):
            connection.exec_(setting.encode())
        return connection

    @property
    def _options(self) -> str:
        """The options of the URL, such as a role, and ours, which count where both set something."""
        return f"{conninfo_to_dict(self.url).get('options', '')} {_SESSION}".lstrip()


@contextlib.contextmanager
def asked(captured: CapturedTable) -> Iterator[None]:
    """Raise ServiceUnavailable where the source refuses a command, or the connection breaks."""
    try:
        yield
    except psycopg.errors.ObjectInUse as error:
        raise ServiceUnavailable(
            f"{captured.dataset}: the replication slot {captured.slot} is read by another session: {_text(error)} "
            "What is durable stays; nothing is lost. Run it again when that session has ended: one of a process that "
            "was killed lives on there for a moment."
        ) from error
    except psycopg.Error as error:
        raise ServiceUnavailable(
            f"{captured.dataset}: the source of {captured.source} refused or broke off: {_text(error)} What is durable "
            "stays; nothing is lost. Run it again."
        ) from error


def _text(error: psycopg.Error) -> str:
    message = str(error).strip().rstrip(".")
    return f"{message}."


def moment(connection: psycopg.Connection) -> str:
    """The start of the transaction, in the format of the timestamps of events."""
    row = connection.execute("select transaction_timestamp()").fetchone()
    assert row is not None
    started: dt.datetime = row[0]
    return started.astimezone(dt.UTC).isoformat(timespec="microseconds")


def server(connection: psycopg.Connection) -> Server:
    """The identity of the server."""
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    return Server(*row)


def end_of_log(connection: psycopg.Connection) -> int:
    """The LSN of the end of the log, whether it is on disk or not."""
    (end,) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
    return parse_lsn(end)


def describe(connection: psycopg.Connection, name: str) -> SourceTable | None:
    """The description of `schema.table` now; None where there is no such table.

    Raises SourceRefused where it is not an ordinary, logged table.
    """
    row = connection.execute(_TABLE, (name, name, name)).fetchone()
    if row is None:
        return None
    oid, identity, kind, persistence, filenode, changed_by, last_number = row
    if kind != "r" or persistence != "p":
        kinds = {"p": "partitioned; capture its partitions", "v": "a view", "m": "a materialized view"}
        raise SourceRefused(
            f"{name} is {kinds.get(kind, 'unlogged or temporary') if kind != 'r' else 'unlogged or temporary'}: its "
            "changes are not in the source's log under that name. Nothing was changed."
        )
    columns, unsent = [], []
    published = {"", "s"} if connection.info.server_version >= GENERATED_PUBLISHED_SINCE else {""}
    described_columns = connection.execute(_COLUMNS, (oid,))
    for column, number, type_, typmod, labels, type_oid, generated, missing, altered_by in described_columns:
        if generated in published:
            value = missing[0] if missing else None
            is_known = missing is None or len(missing) == 1
            columns.append(
                SourceColumn(column, number, type_, typmod, tuple(labels), type_oid, None, value, is_known, altered_by)
            )
        else:
            unsent.append(column)
    key = connection.execute(_KEY, (oid, identity == "i")).fetchone()
    names, immediate = (tuple(key[0]), bool(key[1])) if key else ((), True)
    # Servers that can publish generated columns refuse to change rows whose old row would contain unpublished ones.
    blocked = identity == "f" and bool(unsent) and "s" in published
    return SourceTable(
        oid, tuple(columns), names, identity, not immediate, filenode, changed_by, unsent=tuple(unsent),
        blocked=blocked, last_number=last_number,
    )  # fmt: skip


def described(connection: psycopg.Connection, captured: CapturedTable) -> SourceTable:
    """The description of a captured table, with its publication. Raises NeedsResnapshot where it is not there."""
    table = describe(connection, captured.source)
    if table is None:
        raise NeedsResnapshot(
            f"{captured.dataset}: the source, database {connection.info.dbname} on {connection.info.host}, has no "
            f"table {captured.source}: misspelt, dropped, renamed, or another database. Nothing was captured; what the "
            "dataset serves stays as it is. Put it back, or declare where it is, and take a snapshot: "
            f"varve cdc bootstrap {captured.dataset}, or varve cdc resnapshot {captured.dataset} where it was captured "
            "before."
        )
    row = connection.execute(_PUBLISHED, (captured.slot, table.oid)).fetchone()
    return replace(table, publication=row[0] if row else "")


def hold_still(connection: psycopg.Connection, name: str) -> None:
    """Lock the table against rewrites and TRUNCATE until the transaction ends."""
    schema, _, plain = name.partition(".")
    connection.execute(sql.SQL("lock table only {} in access share mode").format(sql.Identifier(schema, plain)))


def lies_still(connection: psycopg.Connection, table: SourceTable) -> bool:
    """Whether the table still has the files that the transaction's snapshot shows.

    Rewrites and TRUNCATE ignore snapshots: an older snapshot sees an empty table after them.
    """
    return connection.execute(_FILENODE_NOW, (table.oid,)).fetchone() == (table.filenode,)


def slot_of(connection: psycopg.Connection, name: str) -> Slot | None:
    """The replication slot of this name; None where the source has none."""
    row = connection.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return None
    confirmed, wal_status, safe, active, retained, _ = row
    return Slot(parse_lsn(confirmed) if confirmed else 0, wal_status or "lost", safe, active, retained or 0)


def publish(connection: psycopg.Connection, captured: CapturedTable) -> None:
    """Create a publication with the slot's name that contains only this table."""
    schema, _, table = captured.source.partition(".")
    name = sql.Identifier(captured.slot)
    with connection.transaction():
        connection.execute(sql.SQL("drop publication if exists {}").format(name))
        # Also for a table without generated columns, as the application may add one.
        options = connection.info.server_version >= GENERATED_PUBLISHED_SINCE
        connection.execute(
            sql.SQL("create publication {} for table only {}{}").format(
                name, sql.Identifier(schema, table), sql.SQL(_WITH_GENERATED if options else "")
            )
        )


def unpublish(connection: psycopg.Connection, captured: CapturedTable) -> None:
    """Remove the slot and the publication, as far as they exist."""
    unpublish_slot(connection, captured.slot)


def unpublish_slot(connection: psycopg.Connection, slot: str) -> None:
    """The same by the name of the slot."""
    if slot_of(connection, slot) is not None:
        connection.execute("select pg_drop_replication_slot(%s)", (slot,))
    connection.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(slot)))


def refuse_other_server(captured: CapturedTable, expected: Server, server: Server) -> None:
    """Raise NeedsResnapshot where our LSNs are not valid at this server any more."""
    if expected != server:
        difference = (
            "is another server (restored from a backup?)"
            if expected.system_identifier != server.system_identifier
            else f"is on timeline {server.timeline}, was on {expected.timeline} (a standby was promoted?)"
        )
        raise NeedsResnapshot(
            f"{captured.dataset}: the source {difference}: system {server.system_identifier}, was "
            f"{expected.system_identifier}. Positions in its log have lost their meaning; nothing was "
            "captured, and the dataset serves its last exact state. "
            f"Take a new snapshot: varve cdc resnapshot {captured.dataset}"
        )
