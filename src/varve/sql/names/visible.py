"""Which names are visible at a place of a query, as far as the text and the columns of datasets tell.

In doubt, a name counts as visible: a bare name that may be a column is never a variable of the scope. Where only the
data determines the names (the fields of a struct under `w.*`, a generator without a list of names), the result contains
`ANY_NAME`.

Not here: what follows for variables (scope_variables.py), and Spark's own verdict on each of them (spark/analysis.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from varve.sql.names.generators import is_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Columns: TypeAlias = "Callable[[str], Collection[str] | None]"

# Stands in a set of names for "any name may be visible".
ANY_NAME = "*"
# The clauses of a SELECT in which also the columns of its own result are visible.
_SEE_OUTPUTS = {"expressions", "group", "having", "order", "qualify", "sort", "cluster", "distribute", "windows"}
# The names that generators give to their columns where the query does not name them.
_GENERATED = {
    exp.Explode: {"col", "key", "value"},
    exp.ExplodeOuter: {"col", "key", "value"},
    exp.Posexplode: {"pos", "col", "key", "value"},
    exp.PosexplodeOuter: {"pos", "col", "key", "value"},
}


def owner_of(column: exp.Column, name: str, columns: Columns) -> tuple[str | None, bool]:
    """Return the owner of a possible column of this name at the place of a bare name, and whether it is certain.

    The owner is None where no visible source can have such a column.
    """
    maybe_owner = None
    for owner, names in _visible_names(column, columns):
        if name in names:
            return owner, True
        if ANY_NAME in names:
            maybe_owner = maybe_owner or owner
    return maybe_owner, False


def visible_sources(node: exp.Expr) -> Iterator[list[exp.Expr]]:
    """Yield the sources that are visible to an expression, those of the innermost SELECT first."""
    at: exp.Expr = node
    while (parent := at.parent) is not None:
        if isinstance(parent, exp.Select) and _is_seen(at, node):
            yield sources_of(parent)
        at = parent


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """The sources of a SELECT: tables, queries under a name, generators."""
    sources: list[exp.Expr] = []
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is not None:
        sources += _with_joins(from_.this)
    for join in select.args.get("joins") or ():
        sources += _with_joins(join.this)
    return [*sources, *(select.args.get("laterals") or ())]


def aliases_of(source: exp.Expr) -> set[str]:
    """The names, in lower case, that may stand for a source before a dot, including the alias of a PIVOT."""
    pivots = source.args.get("pivots") or ()
    return {name.lower() for name in (source.alias_or_name, *(pivot.alias for pivot in pivots)) if name}


def columns_of(source: exp.Expr, columns: Columns) -> set[str]:
    """The column names that a source may have, in lower case."""
    names = _alias_columns(source) or _source_columns(source, columns)
    for pivot in source.args.get("pivots") or ():
        names |= _pivot_columns(pivot)
    return names


def outputs_of(query: exp.Expr, columns: Columns) -> set[str]:
    """The column names that the result of a query may have, in lower case."""
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(query, exp.SetOperation):
        return outputs_of(query.left, columns) | outputs_of(query.right, columns)
    if not isinstance(query, exp.Select):
        return {ANY_NAME}
    names: set[str] = set()
    for expression in query.expressions:
        names |= _output_names(expression, query, columns)
    return names


def _visible_names(column: exp.Column, columns: Columns) -> Iterator[tuple[str, set[str]]]:
    at: exp.Expr = column
    while (parent := at.parent) is not None:
        if isinstance(parent, exp.Select) and _is_seen(at, column):
            hidden = _hidden_sources(parent, column)
            for source in sources_of(parent):
                if id(source) not in hidden:
                    yield source.alias_or_name or "the query", columns_of(source, columns)
            if at.arg_key in _SEE_OUTPUTS:
                other_projections = [
                    expression
                    for expression in parent.expressions
                    if expression is not at and not is_self_named(expression)
                ]
                for projection in other_projections:
                    if isinstance(projection, exp.Alias | exp.Aliases):
                        yield "the query's own result", _output_names(projection, parent, columns)
        elif isinstance(parent, exp.Pivot) and parent.parent is not None:
            yield "what is pivoted", columns_of(parent.parent, columns)
        elif isinstance(parent, exp.SetOperation | exp.Subquery) and at.arg_key == "order":
            yield "the query's own result", outputs_of(parent, columns)
        at = parent


def _hidden_sources(select: exp.Select, column: exp.Column) -> set[int]:
    """The ids of the sources of SEMI and ANTI joins: their columns are visible in their own ON only."""
    joins = [join for join in select.args.get("joins") or () if (join.kind or "").upper() in {"SEMI", "ANTI"}]
    around = set()
    at: exp.Expr | None = column
    while at is not None and at is not select:
        around.add(id(at))
        at = at.parent
    return {id(source) for join in joins if id(join) not in around for source in _with_joins(join.this)}


def _is_seen(child: exp.Expr, node: exp.Expr) -> bool:
    """Whether the sources of the SELECT are visible at `node`, which is inside its part `child`."""
    if child.arg_key in {"with_", "with"}:
        return False
    if child.arg_key not in {"from_", "from", "joins"}:
        return True
    # Within FROM, they are visible only in the conditions of joins and in what is LATERAL.
    at, seen = node, False
    while at is not child and at.parent is not None:
        if isinstance(at, exp.Lateral) or (at.arg_key == "on" and isinstance(at.parent, exp.Join)):
            seen = True
        elif isinstance(at, exp.Query):
            seen = False
        at = at.parent
    return seen or isinstance(child, exp.Lateral)


def is_self_named(projection: exp.Expr) -> bool:
    """Whether a projection gives a name to itself, like `day AS day`: a reader then means the same value either way."""
    inner = projection.unalias()
    bare = isinstance(inner, exp.Column) and not inner.table
    return (bare or isinstance(inner, exp.Placeholder)) and inner.name.lower() == projection.alias_or_name.lower()


def _with_joins(source: exp.Expr) -> list[exp.Expr]:
    sources = [source]
    inner = source.this if isinstance(source, exp.Subquery) and not isinstance(source.this, exp.Query) else None
    if inner is not None:
        sources += _with_joins(inner)
    for join in source.args.get("joins") or ():
        sources += _with_joins(join.this)
    return sources


def _alias_columns(source: exp.Expr) -> set[str]:
    alias = source.args.get("alias")
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return {identifier.name.lower() for identifier in names or ()}


def _source_columns(source: exp.Expr, columns: Columns) -> set[str]:  # noqa: PLR0911 - one for each kind of source
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        if source.db:
            return {column.lower() for column in columns(f"{source.db}.{source.name}".lower()) or ()}
        cte = cte_of(source)
        return set() if cte is None else _alias_columns(cte) or outputs_of(cte.this, columns)
    if isinstance(source, exp.Subquery | exp.Lateral) and isinstance(source.this, exp.Query):
        return outputs_of(source.this, columns)
    if isinstance(source, exp.Subquery):
        return set()
    if isinstance(source, exp.Values):
        width = max(
            (len(expression.expressions) for expression in source.expressions if isinstance(expression, exp.Tuple)),
            default=1,
        )
        return {f"col{place}" for place in range(1, width + 1)}
    function = source.this if isinstance(source, exp.Lateral | exp.Table) else source
    if isinstance(function, exp.Anonymous) and function.name.lower() == "range":
        return {"id"}
    return set(_GENERATED.get(type(function), {ANY_NAME}))


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table without a database refers to, in a WITH around it; a CTE sees only those before it."""
    at: exp.Expr = table
    inside: exp.Expr | None = None
    while (parent := at.parent) is not None:
        with_ = at if isinstance(at, exp.With) else parent.args.get("with_") or parent.args.get("with")
        if isinstance(at, exp.CTE):
            inside = at
        elif isinstance(with_, exp.With) and not isinstance(parent, exp.With):
            for cte in with_.expressions:
                if cte is inside and at is with_ and not with_.recursive:
                    break
                if cte.alias.lower() == table.name.lower():
                    return cte  # type: ignore[no-any-return]
        at = parent
    return None


def reached_tables(query: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables of datasets that a query reads as it runs: not those of a CTE that nothing refers to."""
    todo, seen = [query], set[int]()
    while todo:
        for node in todo.pop().walk(prune=lambda part: isinstance(part, exp.With | exp.Hint)):
            if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
                continue
            cte = None if node.db else cte_of(node)
            if cte is None:
                yield node
            elif id(cte) not in seen:
                seen.add(id(cte))
                todo.append(cte.this)


def _output_names(  # noqa: PLR0911 - one for each kind of column
    projection: exp.Expr, select: exp.Select, columns: Columns
) -> set[str]:
    if isinstance(projection, exp.Alias):
        return {projection.alias.lower()}
    if isinstance(projection, exp.Aliases):
        return {expression.name.lower() for expression in projection.args["expressions"]}
    if isinstance(projection, exp.Star):
        return {name for source in sources_of(select) for name in columns_of(source, columns)}
    if isinstance(projection, exp.Column):
        if not isinstance(projection.this, exp.Star):
            return {projection.name.lower()}
        owners = [source for source in sources_of(select) if source.alias_or_name.lower() == projection.table.lower()]
        # Where the name is no table, these are the fields of a struct.
        return {name for owner in owners for name in columns_of(owner, columns)} if owners else {ANY_NAME}
    if type(projection) in _GENERATED:
        return set(_GENERATED[type(projection)])
    if is_generator(projection):
        return {ANY_NAME}
    # Spark derives the name from the text: every identifier in it may be part of the name.
    return {identifier.name.lower() for identifier in projection.find_all(exp.Identifier)}


def _pivot_columns(pivot: exp.Expr) -> set[str]:
    """All names in a PIVOT or UNPIVOT, and the names that it may form from its values and functions."""
    names = {identifier.name.lower() for identifier in pivot.find_all(exp.Identifier)}
    values = {literal.name.lower() for literal in pivot.find_all(exp.Literal) if literal.is_string}
    aliases = {alias.alias.lower() for alias in pivot.find_all(exp.Alias)}
    combined = {f"{value}_{alias}" for value in values | aliases for alias in aliases}
    # Values that are no plain texts give names that cannot be told here.
    wildcard = (
        {ANY_NAME} if pivot.find(exp.Column) and not values and not aliases and not pivot.args.get("unpivot") else set()
    )
    return names | values | combined | wildcard
