"""The rights that the user of a capture needs at the source: with these it captures, with one fewer it says which.

Not here: what the source hides from a user by policies (test_source.py).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from varve.model.errors import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cdc.lab import Lab

# docs/security.md lists them.
RIGHTS = {
    "REPLICATION": "alter role {role} replication",
    "CREATE on the database": "grant create on database {database} to {role}",
    "USAGE on the schema": "grant usage, create on schema public to {role}",
    "ownership of the table": "alter table {table} owner to {role}",
}
WITHOUT = {
    "REPLICATION": r"permission denied to (use|start|create) .*replication|The user needs REPLICATION",
    "CREATE on the database": "permission denied for database",
    "USAGE on the schema": "permission denied for schema public",
    "ownership of the table": "must be owner of table",
}


class User:
    """A user of the source who may do nothing, and is given rights by name."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.owner_url = lab, lab.url
        self.role = f"capture_{uuid.uuid4().hex[:8]}"
        with lab.source() as source:
            (self.database,) = source.execute("select current_database()").fetchone() or ("",)
        self.run("create role {role} login")

    def run(self, statement: str) -> None:
        """A statement of the source's administrator."""
        composed = sql.SQL(statement).format(
            role=sql.Identifier(self.role),
            database=sql.Identifier(self.database),
            table=sql.Identifier(*self.lab.table.split(".")),
        )
        with psycopg.connect(self.owner_url, autocommit=True) as administrator:
            administrator.execute(composed)

    def give(self, *rights: str) -> None:
        for right in rights:
            self.run(RIGHTS[right])

    def captures(self) -> None:
        """From now on the capture is the user's."""
        self.lab.url = self.owner_url.replace("postgres@", f"{self.role}@")
        assert self.role in self.lab.url


@pytest.fixture
def user(make_lab: Callable[..., Lab]) -> Iterator[User]:
    lab = make_lab()
    lab.sql("insert into {t} (w, id) select 1, i from generate_series(1, 3) i")
    made = User(lab)
    # What PostgreSQL before 15 gives everybody is nobody's here.
    made.run("revoke create, usage on schema public from public")
    yield made
    lab.url = made.owner_url
    lab.sql("drop table if exists {t}")
    made.run("grant usage on schema public to public")
    with psycopg.connect(made.owner_url, autocommit=True) as administrator:
        administrator.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(made.lab.captured.slot)))
    made.run("reassign owned by {role} to postgres")
    made.run("drop owned by {role}")
    made.run("drop role {role}")


def test_a_user_with_exactly_these_rights_captures(user: User) -> None:
    user.give(*RIGHTS)
    user.captures()
    assert user.lab.bootstrap().counts.inserts == 3
    user.lab.sql("update {t} set note = 'paid' where id = 2")
    batch = user.lab.capture()
    assert batch is not None
    assert batch.counts.events == 1


@pytest.mark.parametrize("missing", RIGHTS)
def test_a_user_with_one_right_too_few_is_told_what_the_server_refused_and_leaves_nothing(
    user: User, missing: str
) -> None:
    user.give(*[right for right in RIGHTS if right != missing])
    user.captures()
    with pytest.raises(ServiceUnavailable, match=WITHOUT[missing]) as refused:
        user.lab.bootstrap()
    assert "Nothing was changed" in str(refused.value) or "nothing is lost" in str(refused.value)
    with psycopg.connect(user.owner_url, autocommit=True) as administrator:
        left = administrator.execute(
            "select slot_name from pg_replication_slots where slot_name = %(name)s "
            "union all select pubname from pg_publication where pubname = %(name)s",
            {"name": user.lab.captured.slot},
        ).fetchall()
    assert left == []
    # The right is given, and the same command goes on.
    user.give(missing)
    assert user.lab.bootstrap().counts.inserts == 3


def test_after_the_snapshot_the_table_may_have_another_owner(user: User) -> None:
    """A capture that goes on needs REPLICATION, and nothing of the table."""
    user.give(*RIGHTS)
    user.captures()
    user.lab.bootstrap()
    user.run("alter table {table} owner to postgres")
    with psycopg.connect(user.owner_url, autocommit=True) as administrator:
        administrator.execute(f"update {user.lab.table} set note = 'paid' where id = 2".encode())
    batch = user.lab.capture()
    assert batch is not None
    assert batch.counts.events == 1
    user.run("alter role {role} noreplication")
    with pytest.raises(ServiceUnavailable, match="permission denied"):
        user.lab.capture()
    user.run("alter role {role} replication")
    assert user.lab.capture() is None
