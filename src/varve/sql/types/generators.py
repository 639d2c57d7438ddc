"""Generators in the lists of SELECTs, `EXPLODE(items)`, each of whose columns becomes a part of its list.

sqlglot counts each generator as one column. Of one without names only the data say how many there are: an array is one,
and a map two.

Not here: what is a generator (names/generators.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.names.generators import is_generator, names_of, result_selects
from varve.sql.names.trees import copied
from varve.sql.names.visible import sources_of
from varve.sql.types.outputs import QueryFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The function, which no query has, that one column of a generator is in the tree.
_OPENED = "VARVE_OPENED"
# The names that Spark gives to the columns of these, where a query does not name them.
_STACK, _JSON_TUPLE = re.compile(r"col\d+"), re.compile(r"c\d+")


def open_generators(tree: exp.Expr) -> None:
    """Put the columns of each generator into the list of its SELECT, in place, as far as their names are known."""
    _name(tree)
    for aliases in list(tree.find_all(exp.Aliases)):
        select = aliases.parent
        if isinstance(select, exp.Select):
            opened = [_column(aliases, place) for place in range(len(aliases.expressions))]
            parts = [part for own in select.expressions for part in (opened if own is aliases else [own])]
            select.set("expressions", parts)


def generator_findings(tree: exp.Expr) -> Iterator[QueryFinding]:
    """Yield a finding for each list of names, `x (a, b, c)`, of which nobody knows which ones are those of a generator.

    Names move by one where a generator is two columns, and a condition would be one on another column.
    """
    for holder in _holders(tree):
        names = _listed(holder)
        for select in result_selects(holder.this) if names else ():
            if len(names) == len(select.expressions) and not select.is_star:
                continue
            for generator in filter(is_generator, select.expressions):
                call = _called(generator)
                yield QueryFinding(
                    f"which of the names {holder.alias} ({', '.join(names)}) are those of {call} is not known; write "
                    f"names behind it too, {call}(...) AS (a, b).",
                    generator,
                )


def _called(generator: exp.Expr) -> str:
    if isinstance(generator, exp.Func) and not isinstance(generator, exp.Anonymous):
        return generator.sql_name()
    return generator.name.upper()


def _column(aliases: exp.Aliases, place: int) -> exp.Alias:
    """One column of a generator. Of several, each is a value of its own, of which nothing is known."""
    generator = copied(aliases.this)
    for column in generator.find_all(exp.Column) if place else ():
        # Who uses this column of a dataset is told once.
        column.this.meta.pop("line", None)
    if len(aliases.expressions) > 1:
        generator = exp.Anonymous(this=_OPENED, expressions=[exp.Literal.number(place), generator])
    return exp.Alias(this=generator, alias=aliases.expressions[place])


def _name(tree: exp.Expr) -> None:
    """Give the columns of generators the names that Spark gives them, where the query does not and asks for them.

    Those of an array are `col`, and those of a map `key` and `value`: which of them it is, the names tell that are
    asked for.
    """
    holders = [holder for holder in _holders(tree) if not _listed(holder) and any(_nameless(holder))]
    asked = _asked(tree) if holders else {}
    for holder in holders:
        names = [name for alias in _aliases_of(holder, tree) for name in asked.get(alias, ())]
        for generator in list(_nameless(holder)):
            if given := _given(generator, names):
                aliases = exp.Aliases(expressions=[exp.to_identifier(name) for name in given])
                generator.replace(aliases)
                aliases.set("this", generator)


def _holders(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the CTEs and the subqueries of FROM and JOIN."""
    for node in tree.find_all(exp.CTE, exp.Subquery, exp.Lateral):
        is_source = not isinstance(node, exp.Subquery) or isinstance(node.parent, exp.From | exp.Join)
        if is_source and isinstance(node.this, exp.Query):
            yield node


def _listed(holder: exp.Expr) -> list[str]:
    """The names of columns in the alias of a CTE or a subquery."""
    alias = holder.args.get("alias")
    return [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []


def _nameless(holder: exp.Expr) -> Iterator[exp.Expr]:
    for select in result_selects(holder.this):
        yield from filter(is_generator, select.expressions)


def _asked(tree: exp.Expr) -> Mapping[str, list[str]]:
    """The names of columns that are asked for, by the alias of the source that they are of."""
    asked: dict[str, list[str]] = {}
    for column in tree.find_all(exp.Column):
        alias = column.table.lower() or _only_source(column)
        if alias is not None:
            asked.setdefault(alias, []).append(column.name.lower())
    return asked


def _only_source(column: exp.Column) -> str | None:
    """The alias, "" where it has none, of the one source that a column without a table can be of; None of several."""
    select = column.find_ancestor(exp.Select)
    sources = sources_of(select) if isinstance(select, exp.Select) else []
    return sources[0].alias_or_name.lower() if len(sources) == 1 else None


def _aliases_of(holder: exp.Expr, tree: exp.Expr) -> set[str]:
    """The names by which columns of a CTE or a subquery are asked for."""
    name = holder.alias.lower()
    if not isinstance(holder, exp.CTE):
        return {name}
    references = [table for table in tree.find_all(exp.Table) if not table.db and table.name.lower() == name]
    return {name, *(table.alias_or_name.lower() for table in references)}


def _given(generator: exp.Expr, asked: list[str]) -> list[str]:
    """The names of the columns of a generator, as far as they are asked for; none where they are not."""
    select = generator.parent
    assert isinstance(select, exp.Select)
    own = {name.lower() for part in select.expressions for name in names_of(part)}
    names = dict.fromkeys(name for name in asked if name not in own)
    if isinstance(generator, exp.Explode):
        place = ["pos"] if isinstance(generator, exp.Posexplode) else []
        pair = ["key", "value"] if names.keys() & {"key", "value"} else []
        if not pair and not names.keys() & {*place, "col"}:
            return []
        return [*place, *(["col"] if "col" in names or not pair else []), *pair]
    if isinstance(generator, exp.Stack):
        return sorted(filter(_STACK.fullmatch, names), key=lambda name: int(name[3:]))
    if isinstance(generator, exp.Anonymous) and generator.name.upper() == "JSON_TUPLE":
        return sorted(filter(_JSON_TUPLE.fullmatch, names), key=lambda name: int(name[1:]))
    # The fields of the structs of INLINE have any names.
    return [] if select.is_star else list(names)
