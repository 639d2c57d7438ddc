"""Which names can be seen at a place of a query, as far as the text and the columns of datasets tell.

More names than Spark would see are given rather than fewer: a bare name that may be a column is none of a scope's
variables. What only the data tells (the fields of a struct under `w.*`, a generator without a list of names) is
`UNTOLD`.

Not here: what follows for variables (scope_variables.py); Spark's own word on each of them (spark/analysis.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Columns: TypeAlias = "Callable[[str], Collection[str] | None]"

# In the place of a name: any name may be there.
UNTOLD = "*"
# The clauses of a SELECT that see what it gives out, beside what it reads.
_SEE_OUTPUTS = {"expressions", "group", "having", "order", "qualify", "sort", "cluster", "distribute", "windows"}
# What generators call what they give, where nobody does.
_GENERATED = {
    exp.Explode: {"col", "key", "value"},
    exp.ExplodeOuter: {"col", "key", "value"},
    exp.Posexplode: {"pos", "col", "key", "value"},
    exp.PosexplodeOuter: {"pos", "col", "key", "value"},
}


def owner_of(column: exp.Column, name: str, columns: Columns) -> tuple[str | None, bool]:
    """What may have a column of this name at the place of a bare name, and whether it certainly has; None: nothing."""
    untold = None
    for owner, names in _around(column, columns):
        if name in names:
            return owner, True
        if UNTOLD in names:
            untold = untold or owner
    return untold, False


def levels(node: exp.Expr) -> Iterator[list[exp.Expr]]:
    """The sources that an expression sees, those of the innermost SELECT first."""
    at: exp.Expr = node
    while (parent := at.parent) is not None:
        if isinstance(parent, exp.Select) and _is_seen(at, node):
            yield sources_of(parent)
        at = parent


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """What a SELECT reads: tables, queries under a name, generators."""
    found: list[exp.Expr] = []
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is not None:
        found += _with_joins(from_.this)
    for join in select.args.get("joins") or ():
        found += _with_joins(join.this)
    return [*found, *(select.args.get("laterals") or ())]


def aliases_of(source: exp.Expr) -> set[str]:
    """What a source may be called before a dot, lower case: what is pivoted is called by what stands behind PIVOT."""
    pivots = source.args.get("pivots") or ()
    return {each.lower() for each in (source.alias_or_name, *(pivot.alias for pivot in pivots)) if each}


def columns_of(source: exp.Expr, columns: Columns) -> set[str]:
    """The names that a source may give, lower case."""
    found = _aliased(source) or _plain(source, columns)
    for pivot in source.args.get("pivots") or ():
        found |= _pivoted(pivot)
    return found


def outputs_of(query: exp.Expr, columns: Columns) -> set[str]:
    """The names that a query may give out, lower case."""
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(query, exp.SetOperation):
        return outputs_of(query.left, columns) | outputs_of(query.right, columns)
    if not isinstance(query, exp.Select):
        return {UNTOLD}
    found: set[str] = set()
    for each in query.expressions:
        found |= _given(each, query, columns)
    return found


def _around(column: exp.Column, columns: Columns) -> Iterator[tuple[str, set[str]]]:
    at: exp.Expr = column
    while (parent := at.parent) is not None:
        if isinstance(parent, exp.Select) and _is_seen(at, column):
            hidden = _hidden(parent, column)
            for source in sources_of(parent):
                if id(source) not in hidden:
                    yield source.alias_or_name or "the query", columns_of(source, columns)
            if at.arg_key in _SEE_OUTPUTS:
                others = [each for each in parent.expressions if each is not at and not is_repeated(each)]
                for each in others:
                    if isinstance(each, exp.Alias | exp.Aliases):
                        yield "the query's own result", _given(each, parent, columns)
        elif isinstance(parent, exp.Pivot) and parent.parent is not None:
            yield "what is pivoted", columns_of(parent.parent, columns)
        elif isinstance(parent, exp.SetOperation) and at.arg_key == "order":
            yield "the query's own result", outputs_of(parent, columns)
        at = parent


def _hidden(select: exp.Select, column: exp.Column) -> set[int]:
    """The sources, by id, that only tell which rows stay: of SEMI and ANTI joins, but in their own ON."""
    joins = [join for join in select.args.get("joins") or () if (join.kind or "").upper() in {"SEMI", "ANTI"}]
    around = set()
    at: exp.Expr | None = column
    while at is not None and at is not select:
        around.add(id(at))
        at = at.parent
    return {id(source) for join in joins if id(join) not in around for source in _with_joins(join.this)}


def _is_seen(child: exp.Expr, node: exp.Expr) -> bool:
    """Whether what stands at `node`, in this part of a SELECT, sees what the SELECT reads."""
    if child.arg_key in {"with_", "with"}:
        return False
    if child.arg_key not in {"from_", "from", "joins"}:
        return True
    # Of FROM, the conditions of joins and what is LATERAL.
    at, seen = node, False
    while at is not child and at.parent is not None:
        if isinstance(at, exp.Lateral) or (at.arg_key == "on" and isinstance(at.parent, exp.Join)):
            seen = True
        elif isinstance(at, exp.Query):
            seen = False
        at = at.parent
    return seen or isinstance(child, exp.Lateral)


def is_repeated(projection: exp.Expr) -> bool:
    """`day AS day`, of a variable: whoever names it means the same."""
    inner = projection.unalias()
    bare = isinstance(inner, exp.Column) and not inner.table
    return (bare or isinstance(inner, exp.Placeholder)) and inner.name.lower() == projection.alias_or_name.lower()


def _with_joins(source: exp.Expr) -> list[exp.Expr]:
    found = [source]
    inner = source.this if isinstance(source, exp.Subquery) and not isinstance(source.this, exp.Query) else None
    if inner is not None:
        found += _with_joins(inner)
    for join in source.args.get("joins") or ():
        found += _with_joins(join.this)
    return found


def _aliased(source: exp.Expr) -> set[str]:
    alias = source.args.get("alias")
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return {each.name.lower() for each in names or ()}


def _plain(source: exp.Expr, columns: Columns) -> set[str]:  # noqa: PLR0911 - one for each kind of source
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        if source.db:
            return {each.lower() for each in columns(f"{source.db}.{source.name}".lower()) or ()}
        cte = cte_of(source)
        return set() if cte is None else _aliased(cte) or outputs_of(cte.this, columns)
    if isinstance(source, exp.Subquery | exp.Lateral) and isinstance(source.this, exp.Query):
        return outputs_of(source.this, columns)
    if isinstance(source, exp.Subquery):
        return set()
    if isinstance(source, exp.Values):
        width = max((len(each.expressions) for each in source.expressions if isinstance(each, exp.Tuple)), default=1)
        return {f"col{place}" for place in range(1, width + 1)}
    function = source.this if isinstance(source, exp.Lateral | exp.Table) else source
    if isinstance(function, exp.Anonymous) and function.name.lower() == "range":
        return {"id"}
    return set(_GENERATED.get(type(function), {UNTOLD}))


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table without a database names: of a WITH around it; a CTE sees those before it."""
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


def _given(  # noqa: PLR0911 - one for each kind of column
    projection: exp.Expr, select: exp.Select, columns: Columns
) -> set[str]:
    if isinstance(projection, exp.Alias):
        return {projection.alias.lower()}
    if isinstance(projection, exp.Aliases):
        return {each.name.lower() for each in projection.args["expressions"]}
    if isinstance(projection, exp.Star):
        return {name for source in sources_of(select) for name in columns_of(source, columns)}
    if isinstance(projection, exp.Column):
        if not isinstance(projection.this, exp.Star):
            return {projection.name.lower()}
        owners = [each for each in sources_of(select) if each.alias_or_name.lower() == projection.table.lower()]
        # A struct's fields, where it is no table.
        return {name for each in owners for name in columns_of(each, columns)} if owners else {UNTOLD}
    if type(projection) in _GENERATED:
        return set(_GENERATED[type(projection)])
    if isinstance(projection, exp.Inline | exp.UDTF) or (
        isinstance(projection, exp.Anonymous) and projection.name.lower() in {"stack", "json_tuple", "inline_outer"}
    ):
        return {UNTOLD}
    # Spark calls it after its text: whatever it mentions may be in its name.
    return {each.name.lower() for each in projection.find_all(exp.Identifier)}


def _pivoted(pivot: exp.Expr) -> set[str]:
    """All that a PIVOT or UNPIVOT names, and what it may make of its values and functions."""
    names = {each.name.lower() for each in pivot.find_all(exp.Identifier)}
    values = {each.name.lower() for each in pivot.find_all(exp.Literal) if each.is_string}
    aliases = {each.alias.lower() for each in pivot.find_all(exp.Alias)}
    made = {f"{value}_{alias}" for value in values | aliases for alias in aliases}
    # A value that is no plain text gives a name that nobody can tell here.
    untold = (
        {UNTOLD} if pivot.find(exp.Column) and not values and not aliases and not pivot.args.get("unpivot") else set()
    )
    return names | values | made | untold
