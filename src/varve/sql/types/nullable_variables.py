"""Which variables of a scope may be NULL: those that FOR binds never are, a LET is where its expression may be.

A LET calls only functions that are evaluated before a run. Other than in expressions.py, which knows nothing of most
functions of Spark, it is therefore certain which of them give NULL for values: those of the table below.

Not here: the values themselves (evaluate/functions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from varve.sql.syntax.sql_file import Named


def nullable_variables(lets: Iterable[Named]) -> frozenset[str]:
    """Return the variables of LET that may be NULL, in lower case; a LET may name those before it."""
    names: set[str] = set()
    for let in lets:
        if may_be_null(let.expression, names):
            names.add(let.name.lower())
    return frozenset(names)


def may_be_null(node: exp.Expr, names: Collection[str]) -> bool:
    """Whether an expression of variables may be NULL, where the variables of these names may be."""
    if isinstance(node, exp.Column | exp.Placeholder):
        return node.name.lower() in names
    # The parser has TryCast for every cast of Spark's, and says of TRY_CAST that it is safe.
    if isinstance(node, exp.Null | exp.Nullif) or (isinstance(node, exp.TryCast) and node.args.get("safe")):
        return True
    if isinstance(node, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ | exp.EqualNull):
        return False
    if isinstance(node, exp.Case):
        branches = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
    elif isinstance(node, exp.If | exp.Nvl2):
        branches = [node.args["true"], node.args.get("false")]
    else:
        parts = [may_be_null(part, names) for part in node.iter_expressions()]
        return all(parts) if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least) else any(parts)
    return any(branch is None or may_be_null(branch, names) for branch in branches)
