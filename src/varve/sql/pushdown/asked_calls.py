"""Calls of functions in conditions whose values Spark is asked for, as they are written.

Such a call stands in the tree of conditions as `VARVE_ASKED('soundex({0})', store)`: the author's text with a number
for each column, and the columns behind it. Pushdown replaces the columns by what they come from, and the text stays
what was written. `VARVE_TRIED(text, call, ...)` has a call that may have a value before a run, such as DATE_FORMAT
with a pattern that is not known here; Spark's answer counts only where it has none.

Not here: the answers (sql/values.py), and which values are asked for (partitions/value_questions.py).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from varve.sql.evaluate.asked import ASKED, TRIED
from varve.sql.evaluate.functions import is_known
from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import copied, replaced
from varve.sql.syntax.body import parsed, span_of
from varve.sql.syntax.errors import Span
from varve.sql.syntax.lexer import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlglot.tokenizer_core import Token


# Functions whose value is not that of their arguments alone; most of them no query may call (checks/problems.py).
VOLATILE = frozenset({
    "CURRENT_DATE", "CURDATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "NOW", "LOCALTIMESTAMP", "CURRENT_TIMEZONE",
    "RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID",
    "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH", "CURRENT_USER",
    "USER", "SESSION_USER", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_CATALOG", "VERSION", "REFLECT",
    "TRY_REFLECT", "JAVA_METHOD", "UNIX_TIMESTAMP", "SESSION_WINDOW",
})  # fmt: skip
# Calls that are evaluated here for some patterns and not for others.
_PATTERNED = (
    exp.TimeToStr, exp.StrToTime, exp.TsOrDsToDate, exp.StrToUnix, exp.UnixToStr, exp.RegexpLike, exp.RegexpReplace,
    exp.TimestampTrunc, exp.DateTrunc,
)  # fmt: skip
# What sqlglot calls functions, and is not written as one.
_NO_CALLS = (exp.Connector, exp.Cast, exp.TryCast, exp.Case)
_NEVER = (exp.AggFunc, exp.Window, exp.Query, exp.Star, exp.UDTF, exp.Explode, exp.Lambda, exp.Placeholder)
# Around a call, these give it another meaning than that of its text.
_AROUND = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Dot, exp.Lateral, exp.Table)


def with_asked_calls(tree: exp.Expr, text: str, wanted: Callable[[str], bool]) -> exp.Expr:
    """Return a qualified query with each outermost call that Spark can be asked for, and whose text is wanted.

    Args:
        tree: the qualified query; its nodes know their places in `text`, the file.
        text: the file.
        wanted: whether a call of this text counts.
    """
    found: dict[int, exp.Expr] = {}
    todo = [tree]
    while todo:
        node = todo.pop()
        written = _written(node, text) if _is_open_call(node) else None
        if written is None:
            todo += node.iter_expressions()
        elif wanted(written[0]):
            tried = [copied(node)] if _may_have_a_value(node) else []
            arguments = [exp.Literal.string(written[0]), *tried, *map(copied, written[1])]
            found[id(node)] = exp.Anonymous(this=TRIED if tried else ASKED, expressions=arguments)
    if not found:
        return tree
    # In a copy, nodes stand in the same order as in the original.
    originals, made = list(tree.walk()), copied(tree)
    for original, node in zip(originals, list(made.walk()), strict=True):
        if id(original) in found:
            node.replace(found[id(original)])
    return made


def _is_open_call(node: exp.Expr) -> bool:
    """Whether an expression is a call that has no value here, or may have none."""
    if (
        not isinstance(node, exp.Func)
        or isinstance(node, _NO_CALLS)
        or isinstance(node.parent, _AROUND)
        or node.find(*_NEVER)
    ):
        return False
    if not any(not is_known(part) or isinstance(part, _PATTERNED) for part in _parts(node)):
        return False
    return not any(_name(part) in VOLATILE or _gives_rows(part) for part in node.walk())


def _gives_rows(call: exp.Expr) -> bool:
    """Whether a call may give several rows for one: a generator, or WINDOW where a time is in several windows."""
    if _name(call) == "WINDOW":
        return len(call.expressions) > 2 and call.expressions[1] != call.expressions[2]
    return _name(call) == "INLINE_OUTER"


def _may_have_a_value(call: exp.Expr) -> bool:
    return all(map(is_known, _parts(call)))


def _parts(call: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a call that are evaluated; types, units and names are none."""
    for node in call.walk(prune=lambda part: isinstance(part, exp.Column | exp.DataType | exp.Interval)):
        if not isinstance(node, exp.Column | exp.DataType | exp.Interval | exp.Var | exp.Identifier):
            yield node


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    return node.sql_name().upper() if isinstance(node, exp.Func) else ""


def _written(call: exp.Expr, text: str) -> tuple[str, list[exp.Column]] | None:
    """The author's text of a call, with `{0}`, `{1}` ... for its columns, and those; None where it cannot be told.

    That a piece of the text is this call is proven: read again, it is the same tree.
    """
    span = _span(call, text)
    columns = _columns(call, text, span) if span is not None else None
    if span is None or columns is None:
        return None
    pieces, at = [], span.start
    for place, (mention, _) in enumerate(columns):
        if not at <= mention.start < mention.end <= span.end:
            return None
        # `:day` is the variable `day`.
        before = mention.start - 1 if text[mention.start - 1] == ":" else mention.start
        pieces += [_braced(text[at:before]), f"{{{place}}}"]
        at = mention.end
    written = "".join([*pieces, _braced(text[at : span.end])])
    names = {id(column): f"varve_value_{place}" for place, (_, column) in enumerate(columns)}
    expected = replaced(call, lambda column: exp.column(names[id(column)]))
    try:
        found = parsed(written.format(*names.values()))
    except SqlglotError:
        return None
    return (written, [column for _, column in columns]) if found == expected else None


def _span(call: exp.Expr, text: str) -> Span | None:
    """The place of a call, up to the parenthesis that closes it; None where it cannot be told."""
    if call._meta is not None and "start" in call._meta:
        start, after_name = call.meta["start"], call.meta["end"] + 1
    elif (name := _name_before(call, text)) is not None:
        start, after_name = name.start, name.end
    else:
        return None
    depth = 0
    for token in _tokens(text, after_name, len(text)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0:
            return Span(start, token.end + 1) if token.token_type is TokenType.R_PAREN else None
    return None


def _name_before(call: exp.Expr, text: str) -> Span | None:
    """The name of a call whose place the parser did not record: the nearest of its names around what it holds."""
    inner = span_of(call)
    if inner is None or not isinstance(call, exp.Func):
        return None
    names, depth = {name.upper() for name in call.sql_names()}, 0
    before = list(pairwise(_tokens(text, 0, inner.start)))
    for name, token in reversed(before):
        if token.token_type is TokenType.R_PAREN:
            depth += 1
        elif token.token_type is TokenType.L_PAREN and depth:
            depth -= 1
        elif token.token_type is TokenType.L_PAREN and name.text.upper() in names:
            return Span(name.start, name.end + 1)
    return None


def _columns(call: exp.Expr, text: str, within: Span) -> list[tuple[Span, exp.Column]] | None:
    """The columns of a call in the order of its text, each with its place; None where a place is not known."""
    # The parser does not record the place of `:day`.
    variables: dict[str, list[Span]] = {}
    for colon, name in pairwise(_tokens(text, within.start, within.end)):
        if colon.token_type is TokenType.COLON and colon.end + 1 == name.start:
            variables.setdefault(name.text.lower(), []).append(Span(name.start, name.end + 1))
    placed = []
    for column in call.find_all(exp.Column):
        span = span_of(column)
        if span is None and column.table == SCOPE and variables.get(column.name):
            span = variables[column.name].pop(0)
        if span is None or not column.table:
            return None
        placed.append((span, column))
    return sorted(placed, key=lambda place: place[0].start)


def _tokens(text: str, start: int, end: int) -> list[Token]:
    tokens = tokens_of(text)
    return [*tokens[bisect_left(tokens, start, key=_start) : bisect_left(tokens, end, key=_start)]]


def _start(token: Token) -> int:
    return token.start


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
