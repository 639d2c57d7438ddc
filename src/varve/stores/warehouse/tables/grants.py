"""The grants of a dataset's view: who may select from it, as the dataset declares it by GRANT SELECT TO.

A grant that is declared is made where it is missing, by a publish or a migration; one that is not declared any more is
taken back. What somebody else has granted stays.

Not here: the roles of the warehouse itself (roles.py), and grants of others over a migration (dependents.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from varve.model.errors import NOTHING_LOST, VarveError, nearest, some
from varve.stores.warehouse.tables import view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from varve.model.dataset import Dataset

_ROLES = "select rolname from pg_catalog.pg_roles where rolname <> all(%s) and rolname !~ '^pg_' order by 1"
_EXISTING = "select rolname from pg_catalog.pg_roles where rolname = any(%s)"
_MAY_SELECT = """
    select pg_get_userbyid(g.grantee) from pg_catalog.pg_class c cross join aclexplode(c.relacl) g
    where c.oid = to_regclass(%s) and g.privilege_type = 'SELECT' and g.grantee <> 0
"""
_GRANTED = "select role_name from varve.view_grant where dataset = %s"
_FORGET = "delete from varve.view_grant where dataset = %s"
_NOTE = "insert into varve.view_grant (dataset, role_name) select %s, unnest(%s::text[])"


def missing_roles(connection: psycopg.Connection, roles: Sequence[str]) -> list[str]:
    """Those of the roles that the server has not."""
    existing = {name for (name,) in connection.execute(_EXISTING, (list(roles),))}
    return [role for role in roles if role not in existing]


def missing_role_text(connection: psycopg.Connection, role: str) -> str:
    """What to do about a role that the server has not, as sentences."""
    others = [name for (name,) in connection.execute(_ROLES, ([role],))]
    return (
        f"the server has no role {role}.{nearest(role, others)} Its administrator creates it: "
        f"{sql.SQL('create role {}').format(sql.Identifier(role)).as_string(connection)};"
    )


def may_select(connection: psycopg.Connection, name: sql.Identifier) -> set[str]:
    """The roles that are granted SELECT on a view, its owner too; none where there is no such view."""
    return {role for (role,) in connection.execute(_MAY_SELECT, (name.as_string(connection),))}


def let_select(schema: str, view_or_table: str, role: str) -> Iterator[sql.Composed]:
    """The statements that let a role select from `schema.view`."""
    yield sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), sql.Identifier(role))
    yield sql.SQL("grant select on {} to {}").format(sql.Identifier(schema, view_or_table), sql.Identifier(role))


def refuse_missing_roles(connection: psycopg.Connection, dataset: Dataset) -> None:
    """Raise VarveError where the dataset grants something to a role that the server has not."""
    if missing := missing_roles(connection, dataset.warehouse.grants):
        raise VarveError(
            f"{dataset}: GRANT SELECT TO {some(missing)}: {missing_role_text(connection, missing[0])} {NOTHING_LOST} "
            "Or take it out of GRANT."
        )


def changes(connection: psycopg.Connection, dataset: Dataset) -> Iterator[sql.Composed]:
    """The statements that make the view's grants those that are declared, and a note of what was declared.

    Call it in a transaction that executes them, with the view as it will be or before it is created again.
    """
    declared, name = dataset.warehouse.grants, view.view_name(dataset)
    granted = {role for (role,) in connection.execute(_GRANTED, (dataset.name,))}
    if not declared and not granted:
        return
    allowed = may_select(connection, name)
    former = sorted(granted - set(declared))
    gone = missing_roles(connection, former)
    for role in former:
        if role not in gone:
            yield sql.SQL("revoke select on {} from {}").format(name, sql.Identifier(role))
    for role in declared:
        if role not in allowed:
            yield from let_select(dataset.db, dataset.table, role)
    if granted != set(declared):
        connection.execute(_FORGET, (dataset.name,))
        connection.execute(_NOTE, (dataset.name, list(declared)))
