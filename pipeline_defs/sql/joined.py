"""A query of many scopes as a join with them.

A LATERAL subquery does for some queries, but not for all: Spark resolves the name of an outer table one level up only,
and takes none on the side of an outer join, in an aggregate or in GROUP BY. Here the scopes are a table of the
outermost SELECT itself: what it names of them is a column like any other, its subqueries are one level below, and each
derived table is LATERAL by itself. Rows of one scope stay together because its partition columns are part of every
GROUP BY, PARTITION BY and DISTINCT.

Not here: whether Spark takes what comes out (execute.py asks it, and tests/pipeline_defs/sql/test_execute.py compares).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from pipeline_defs.sql.grouping import is_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCOPES, SCOPE = "varve.scopes", "__scope"
# They say which rows come out by looking at all of them, or have no place for another table.
_REFUSED = ("limit", "offset", "connect", "match", "sample", "windows", "sort", "cluster", "distribute", "pivots")


def joined(query: exp.Query, keys: Sequence[str]) -> exp.Query | None:
    """The query for all scopes, with the columns `keys` of the scopes before its own; None where there is no such form.

    The variables of the query are columns of `__scope` already.
    """
    inlined = _inlined(query)
    if inlined is None:
        return None
    with_ = inlined.args.get("with_")
    if with_ is not None:
        with_.pop()
    found = _joined(inlined, keys)
    if found is not None and with_ is not None:
        found.set("with_", with_)
    return found


def _joined(query: exp.Query, keys: Sequence[str]) -> exp.Query | None:
    if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query) and not query.alias:
        return _joined(query.this, keys)
    if isinstance(query, exp.Select):
        return _select(query, keys)
    if not isinstance(query, exp.SetOperation) or any(query.args.get(each) for each in (*_REFUSED, "by_name", "with_")):
        return None
    sides = [_joined(side, keys) if isinstance(side, exp.Query) else None for side in (query.left, query.right)]
    if sides[0] is None or sides[1] is None:
        return None
    found = query.copy()
    for name, side in zip(("this", "expression"), sides, strict=True):
        # A SELECT from a SELECT keeps what is around it from reaching in.
        found.set(name, side if isinstance(side, exp.Select) else exp.select("*").from_(side.subquery("__side")))  # type: ignore[union-attr]
    found.set("order", None)
    return found


def _select(query: exp.Select, keys: Sequence[str]) -> exp.Select | None:
    found = query.copy()
    joins: list[exp.Join] = found.args.get("joins") or []
    if any(found.args.get(each) for each in (*_REFUSED, "with_")) or not all(map(_keeps_the_left, joins)):
        return None
    projections = _without_stars(found)
    if projections is None or not _grouped(found, keys):
        return None
    for window in list(_windows(found)):
        window.set("partition_by", [*map(_column, keys), *(window.args.get("partition_by") or [])])
    from_ = found.args.get("from_")
    sources = [*([from_.this] if from_ is not None else []), *(join.this for join in joins)]
    if not all(map(_is_plain, sources)):
        return None
    for source in sources:
        if isinstance(source, exp.Subquery) and mentions(source):
            source.replace(exp.Lateral(this=exp.Subquery(this=source.this), alias=source.args.get("alias")))
    if from_ is not None:
        joins = [exp.Join(this=from_.this, kind="CROSS"), *joins]
    for join in joins:
        if not any(join.args.get(each) for each in ("kind", "side", "on", "using")):
            # A comma binds less than a JOIN, whose ON would not see the scopes.
            join.set("kind", "CROSS")
    found.set("joins", joins)
    found.set("from_", exp.From(this=exp.alias_(exp.to_table(SCOPES), SCOPE, table=True)))
    found.set("expressions", [*(exp.alias_(_column(key), key, quoted=True) for key in keys), *projections])
    found.set("order", None)
    return found


def _grouped(query: exp.Select, keys: Sequence[str]) -> bool:
    """Put the scope into GROUP BY. False where the query gives a row for no rows: no join does."""
    group = query.args.get("group")
    if group is None:
        return query.args.get("having") is None and not any(map(is_aggregate, query.expressions))
    if any(group.args.get(each) for each in ("cube", "rollup", "grouping_sets", "totals")):
        return False
    if any(isinstance(each, exp.Literal) and each.is_number for each in group.expressions):
        # GROUP BY 1 counts the columns of the result.
        return False
    if not group.args.get("all"):
        variables = {column.name for column in query.find_all(exp.Column) if column.table == SCOPE}
        group.set("expressions", [*map(_column, [*keys, *sorted(variables - set(keys))]), *group.expressions])
    return True


def _keeps_the_left(join: exp.Join) -> bool:
    return (join.side or "").upper() not in {"RIGHT", "FULL"} and not join.method


def _is_plain(source: exp.Expr) -> bool:
    """Whether it is a table or a query under a name, and nothing hangs on it."""
    if any(source.args.get(each) for each in ("joins", "pivots", "sample", "laterals")):
        return False
    return not isinstance(source, exp.Subquery) or isinstance(source.this, exp.Query) or not mentions(source)


def _without_stars(query: exp.Select) -> list[exp.Expr] | None:
    """The columns of the result, in which `*` means what it meant before the scopes were there."""
    found: list[exp.Expr] = []
    for each in query.expressions:
        if not isinstance(each, exp.Star):
            found.append(each)
            continue
        joins = query.args.get("joins") or []
        if any(each.args.values()) or any(join.args.get("using") for join in joins):
            return None
        seen = [join for join in joins if (join.kind or "").upper() not in {"SEMI", "ANTI"}]
        sources = [query.args["from_"].this, *(join.this for join in seen), *(query.args.get("laterals") or [])]
        if not all(source.alias_or_name for source in sources):
            return None
        found += [exp.column(exp.Star(), table=source.alias_or_name, quoted=True) for source in sources]
    return found


def _inlined(query: exp.Query) -> exp.Query | None:
    """The query with those of its CTEs in their places that follow the scope; None where that cannot be."""
    found = query.copy()
    with_ = found.args.get("with_")
    if with_ is None:
        return found
    names = [each.alias.lower() for node in found.find_all(exp.With) for each in node.expressions]
    if with_.recursive or len(names) != len(set(names)):
        return None
    kept: list[exp.Expr] = []
    bodies: dict[str, exp.CTE] = {}
    for cte in with_.expressions:
        _placed(cte.this, bodies)
        if mentions(cte):
            bodies[cte.alias.lower()] = cte
        else:
            kept.append(cte)
    with_.set("expressions", kept)
    if not kept:
        with_.pop()
    _placed(found, bodies)
    return found


def _placed(tree: exp.Expr, bodies: dict[str, exp.CTE]) -> None:
    for table in list(tree.find_all(exp.Table)):
        cte = None if table.db else bodies.get(table.name.lower())
        if cte is None:
            continue
        made = exp.Subquery(this=cte.this.copy(), alias=cte.args["alias"].copy())
        if table.alias:
            made.args["alias"].set("this", exp.to_identifier(table.alias))
        for name in ("joins", "pivots", "sample", "laterals"):
            if table.args.get(name):
                made.set(name, table.args[name])
        table.replace(made)


def mentions(node: exp.Expr) -> bool:
    """Whether it names a variable of the scope."""
    return any(column.table == SCOPE for column in node.find_all(exp.Column))


def _windows(query: exp.Select) -> Iterator[exp.Window]:
    """The window functions of this SELECT and of no query inside it."""
    for node in query.walk(prune=lambda each: each is not query and isinstance(each, exp.Query)):
        if isinstance(node, exp.Window):
            yield node


def _column(name: str) -> exp.Column:
    return exp.column(name, table=SCOPE)
