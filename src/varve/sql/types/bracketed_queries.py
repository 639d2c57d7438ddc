"""Queries in brackets, with a WITH before them or clauses behind them: `WITH x AS (...) (SELECT ... FROM x) LIMIT 5`.

The parser keeps both at the brackets. sqlglot's optimizer looks for CTEs at the query within them, and of a query as a
whole it is concluded alike with and without ORDER BY and LIMIT.

Not here: joins in brackets (bracketed_joins.py), and a LIMIT behind brackets within a query (varve/sql/pushdown/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from varve.sql.types.outputs import QueryFinding

if TYPE_CHECKING:
    from collections.abc import Iterator


def within_brackets(tree: exp.Expr) -> exp.Expr:
    """Return the query within the brackets around the whole; each WITH before brackets is moved into them, in place."""
    # From the inner brackets to the outer ones, whose CTEs the inner ones see: they come first.
    for brackets in reversed(list(tree.find_all(exp.Subquery))):
        with_, inner = brackets.args.get("with_"), brackets.unnest()
        if not isinstance(with_, exp.With) or not isinstance(inner, exp.Query):
            continue
        brackets.set("with_", None)
        own = inner.args.get("with_")
        if isinstance(own, exp.With):
            with_.set("expressions", [*with_.expressions, *own.expressions])
            with_.set("recursive", with_.args.get("recursive") or own.args.get("recursive"))
        inner.set("with_", with_)
    return tree.unnest().pop() if isinstance(tree, exp.Subquery) else tree


def bracket_findings(tree: exp.Expr) -> Iterator[QueryFinding]:
    """Yield a finding for a query behind the brackets around the whole, in ORDER BY: what it reads is not planned."""
    while isinstance(tree, exp.Subquery):
        for name, value in tree.args.items():
            for clause in value if isinstance(value, list) else [value]:
                if name in {"this", "with_"} or not isinstance(clause, exp.Expr):
                    continue
                if (query := clause.find(exp.Query)) is not None:
                    message = "no query can stand behind the brackets around the whole; leave the brackets out."
                    yield QueryFinding(message, query)
        tree = tree.this
