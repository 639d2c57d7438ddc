"""Copies of sqlglot's trees, and the rows of inline tables.

sqlglot's own copies have every type and every place in the text too, which is most of the work.

Not here: what is replaced in them (scope_variables.py, pushdown/predicates.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable

_Tree = TypeVar("_Tree", bound=exp.Expr)
# What has operands without brackets of its own, and what is written within its operand.
_OPERATIONS = (exp.Binary, exp.Not, exp.Neg, exp.BitwiseNot, exp.Between, exp.In)
_BOUND = (exp.Dot, exp.Escape, exp.JSONExtract, exp.Slice, exp.PropertyEQ)


def copied(tree: _Tree) -> _Tree:
    """Return a copy of a tree. The types of its nodes, which nobody modifies, are those of the original."""
    return _rebuilt(tree, None)


def replaced(tree: exp.Expr, column: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """Return a copy of an expression in which each column is replaced by the result of `column(...)`, a new node."""
    return column(tree) if isinstance(tree, exp.Column) else _rebuilt(tree, column)


def text_of(tree: exp.Expr) -> str:
    """Return a tree as text in Spark's SQL, which is read as the same tree, but for brackets around operations.

    A tree needs none: `t - INTERVAL 1 DAY 12 HOURS` takes away a sum, and as a text without them only its first part.
    """
    root = exp.Paren(this=copied(tree))
    for call in [*root.find_all(exp.UnixDate)]:
        # sqlglot would write another function, which is not evaluated before a run.
        call.replace(exp.Anonymous(this="UNIX_DATE", expressions=[call.this]))
    for node in [*root.find_all(*_OPERATIONS)]:
        if _needs_brackets(node, node.parent):
            brackets = exp.Paren()
            node.replace(brackets)
            brackets.set("this", node)
    whole: exp.Expr = root.this
    return whole.sql("spark", copy=False)


def _needs_brackets(node: exp.Expr, parent: exp.Expr | None) -> bool:
    if not isinstance(parent, _OPERATIONS) or isinstance(node, _BOUND) or isinstance(parent, _BOUND):
        return False
    # A chain is read from its left: one of a thousand ORs has no thousand brackets in each other.
    is_chain = type(node) is type(parent) and parent.this is node
    return not is_chain and not (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal))


def _rebuilt(root: _Tree, column: Callable[[exp.Column], exp.Expr] | None) -> _Tree:
    made_root = type(root)()
    # A list and no recursion: a chain of a thousand ORs is a tree of this depth.
    todo: list[tuple[exp.Expr, exp.Expr]] = [(root, made_root)]

    def made_of(node: exp.Expr, parent: exp.Expr, name: str, index: int | None) -> exp.Expr:
        if column is not None and isinstance(node, exp.Column):
            made = column(node)
        else:
            made = type(node)()
            todo.append((node, made))
        made.parent, made.arg_key, made.index = parent, name, index
        return made

    while todo:
        node, made = todo.pop()
        if node.comments is not None:
            made.comments = list(node.comments)
        made._type = node._type
        if node._meta is not None:
            made._meta = dict(node._meta)
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                made.args[name] = made_of(value, made, name, None)
            elif isinstance(value, list):
                made.args[name] = [
                    made_of(part, made, name, place) if isinstance(part, exp.Expr) else part
                    for place, part in enumerate(value)
                ]
            else:
                made.args[name] = value
    return made_root


def rows_of_values(node: exp.Values) -> tuple[tuple[exp.Expr, ...], ...]:
    """Return the expressions of each row of an inline table: `VALUES ('EU', 1), ('US', 2)`, or `VALUES 'EU', 'US'`."""
    return tuple(
        tuple(each.expressions) if isinstance(each, exp.Tuple) else (each.unnest(),) for each in node.expressions
    )
