"""What depends on a view: what can be created again after the view was, and what cannot.

PostgreSQL's own catalogs say what depends on what. Statements are made with pg_get_viewdef and quote_ident.

Not here: when to drop and restore (warehouse/migrate.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

# The view and all views over it, with their depth. A view may be reached by several paths.
_UNDER = """
    with recursive under as (
        select %(view)s::regclass::oid as oid, 0 as depth
        union all
        select r.ev_class, u.depth + 1 from under u
        join pg_catalog.pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = u.oid
          and d.classid = 'pg_rewrite'::regclass
        join pg_catalog.pg_rewrite r on r.oid = d.objid and r.ev_class <> u.oid
    )
"""
# The deepest are dropped first.
_VIEWS = """
    select c.oid, n.nspname, c.relname, c.relkind, max(u.depth) from under u
    join pg_catalog.pg_class c on c.oid = u.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    group by 1, 2, 3, 4 order by 5, 2, 3
"""
_VIEWS = _UNDER + _VIEWS
_OWNERS = """
    select format('%%I.%%I', n.nspname, c.relname), quote_ident(pg_get_userbyid(c.relowner)), quote_ident(current_user)
    from under u join pg_catalog.pg_class c on c.oid = u.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    group by 1, 2, 3 order by max(u.depth), 1
"""
_OWNERS = _UNDER + _OWNERS
# Everything else that refers to these views, to their row types or to arrays of those: functions, columns, policies,
# triggers, rules.
_OTHERS = """
    select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
    from pg_catalog.pg_class c join pg_catalog.pg_type t on t.oid = c.reltype
    join pg_catalog.pg_depend d on (d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid)
        or (d.refclassid = 'pg_type'::regclass and d.refobjid in (t.oid, t.typarray))
    where c.oid = any(%(oids)s) and d.deptype <> 'i' and d.classid <> 'pg_attrdef'::regclass
      and not (d.classid = 'pg_class'::regclass and d.objid = any(%(oids)s))
      and not exists (select from pg_catalog.pg_rewrite r where d.classid = 'pg_rewrite'::regclass and r.oid = d.objid
                      and r.rulename = '_RETURN' and r.ev_class = any(%(oids)s))
    union all
    select 'security label of ' || pg_describe_object(s.classoid, s.objoid, s.objsubid)
    from pg_catalog.pg_seclabel s where s.classoid = 'pg_class'::regclass and s.objoid = any(%(oids)s)
    order by 1
"""
_OID = "select to_regclass(%s)::oid"
_DEFINITION = "select pg_get_viewdef(%s::oid)"
# The first of the steps that do not concern comments and defaults of columns.
_OPTIONS = 4
# The order of steps: comments, defaults, options, the owner, grants. We may grant as a member of the owner's role.
_RESTORE = """
    select col, statement from (
        select 1 as step, null::name as col, format('comment on view %%s is %%L', v.name, d.description) as statement
        from v join pg_catalog.pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = v.oid
        where d.objsubid = 0
        union all
        select 2, a.attname, format('comment on column %%s.%%I is %%L', v.name, a.attname, d.description)
        from v join pg_catalog.pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = v.oid
        join pg_catalog.pg_attribute a on a.attrelid = v.oid and a.attnum = d.objsubid where d.objsubid > 0
        union all
        select 3, a.attname, format('alter view %%s alter column %%I set default %%s', v.name, a.attname,
            pg_get_expr(e.adbin, e.adrelid))
        from v join pg_catalog.pg_attrdef e on e.adrelid = v.oid
        join pg_catalog.pg_attribute a on a.attrelid = v.oid and a.attnum = e.adnum
        union all
        select 4, null, format('alter view %%s set (%%s)', v.name, string_agg(o, ', '))
        from v join pg_catalog.pg_class c on c.oid = v.oid cross join unnest(c.reloptions) o
        where not starts_with(o, %(but)s) group by v.name
        union all
        select 5, null, format('alter view %%s owner to %%I', v.name, pg_get_userbyid(c.relowner))
        from v join pg_catalog.pg_class c on c.oid = v.oid where pg_get_userbyid(c.relowner) <> current_user
        union all
        select 6, null, format('grant %%s on %%s to %%s%%s', g.privilege_type, v.name,
            case when g.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end,
            case when g.is_grantable then ' with grant option' else '' end)
        from v join pg_catalog.pg_class c on c.oid = v.oid cross join aclexplode(c.relacl) g
        where g.grantee <> c.relowner
        union all
        select 7, a.attname, format('grant %%s (%%I) on %%s to %%s%%s', g.privilege_type, a.attname, v.name,
            case when g.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end,
            case when g.is_grantable then ' with grant option' else '' end)
        from v join pg_catalog.pg_attribute a on a.attrelid = v.oid and a.attacl is not null and not a.attisdropped
        cross join aclexplode(a.attacl) g
    ) s where step >= %(first)s order by step, statement
"""
_RESTORE = "with v as (select %(oid)s::oid as oid, %(name)s::text as name)" + _RESTORE


@dataclass(frozen=True, slots=True)
class Restore:
    """A statement that gives a view back what it had; `column` is the column that it concerns, where it does one."""

    column: str | None
    statement: str


@dataclass(frozen=True, slots=True)
class Dependent:
    """A view that is dropped with another one and created again.

    Attributes:
        restore: the statements after its creation: comments, defaults, options, owner, grants.
    """

    name: sql.Identifier
    drop: sql.Composed
    create: sql.Composed
    restore: tuple[Restore, ...]


@dataclass(frozen=True, slots=True)
class Dependents:
    """Everything that depends on a view.

    Attributes:
        views: the views over it, nearest first, without the view itself.
        restore: the statements that give the view itself back what it had.
        others: what cannot be created again, as PostgreSQL describes it.
    """

    views: tuple[Dependent, ...]
    restore: tuple[Restore, ...]
    others: tuple[str, ...]


def dependents(connection: psycopg.Connection, view: sql.Identifier) -> Dependents:
    """What depends on the view. Changes nothing."""
    name = view.as_string(connection)
    rows = connection.execute(_VIEWS, {"view": name}).fetchall()
    views, others = [], [f"materialised view {schema}.{table}" for _, schema, table, kind, _ in rows if kind == "m"]
    others += [f"the temporary view {table} of a session" for _, schema, table, _, _ in rows if schema[:7] == "pg_temp"]
    restore: tuple[Restore, ...] = ()
    for oid, schema, table, kind, depth in rows:
        if kind != "v":
            continue
        if depth == 0:
            restore = _restore(connection, oid, name)
        else:
            views.append(_dependent(connection, oid, sql.Identifier(schema, table)))
    view_oids = [oid for oid, _, _, kind, _ in rows if kind == "v"]
    materialized = {f"materialized view {schema}.{table}" for _, schema, table, kind, _ in rows if kind == "m"}
    for (described,) in connection.execute(_OTHERS, {"oids": view_oids}).fetchall():
        if not any(text in described for text in materialized):
            others.append(described)
    return Dependents(tuple(views), restore, tuple(others))


def owners(connection: psycopg.Connection, view: sql.Identifier) -> list[tuple[str, str, str]]:
    """The view and the views over it, nearest first: the name, the owner, and the role of this session, as SQL."""
    return connection.execute(_OWNERS, {"view": view.as_string(connection)}).fetchall()


def as_another(connection: psycopg.Connection, model: sql.Identifier, name: sql.Identifier) -> list[sql.Composed]:
    """The statements that give a view the options, the owner and the grants of another view (`model`).

    Empty where the other view does not exist. A check option is left out, because not every view can have one.
    """
    row = connection.execute(_OID, (model.as_string(connection),)).fetchone()
    if row is None or row[0] is None:
        return []
    parameters = {"oid": row[0], "name": name.as_string(connection), "first": _OPTIONS, "but": "check_option="}
    # The text was made by PostgreSQL itself.
    return [sql.Composed([sql.SQL(text)]) for _, text in connection.execute(_RESTORE, parameters).fetchall()]


def _dependent(connection: psycopg.Connection, oid: int, name: sql.Identifier) -> Dependent:
    row = connection.execute(_DEFINITION, (oid,)).fetchone()
    assert row is not None
    # The text was made by PostgreSQL itself.
    definition = sql.SQL(row[0].rstrip().rstrip(";"))
    return Dependent(
        name,
        sql.SQL("drop view {}").format(name),
        sql.SQL("create view {} as {}").format(name, definition),
        _restore(connection, oid, name.as_string(connection)),
    )


def _restore(connection: psycopg.Connection, oid: int, name: str) -> tuple[Restore, ...]:
    rows: Sequence[tuple[str | None, str]] = connection.execute(
        _RESTORE, {"oid": oid, "name": name, "first": 1, "but": "none"}
    ).fetchall()
    return tuple(Restore(column, statement) for column, statement in rows)
