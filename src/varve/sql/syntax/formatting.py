"""Formats a SQL file: one clause a line, words of the grammar in capitals, long lists on several lines.

What the author wrote is kept: expressions, comments and the query are laid out, never rewritten.

Not here: what the words mean (header.py).
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from varve.model.errors import VarveError
from varve.sql.syntax.clauses.timeseries import UNITS
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse
from varve.sql.syntax.header_text import uncomment_header
from varve.sql.syntax.tokens import CLAUSES, Cursor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.tokenizer_core import Token

    from varve.sql.syntax.sql_file import SqlDataset

_WIDTH = 110
_GRAMMAR = """
CREATE DATASET NOT NULL COMMENT OWNER TAGS STORED IN LAKE WAREHOUSE FOR TIMESERIES DYNAMIC INTERVAL CRON START END
RETENTION TIMEZONE ANCHOR LET INSERT ON UPSTREAM CODE CHANGE REBUILD IGNORE HOLD FORWARD FROM EXPECT REFRESH
LAST ALLOW FULL SCAN OF CLOCK
RANDOM OPTIONS EXTERNAL PYTHON SPARK USING AS OPEN WINDOWS AHEAD INCREMENTAL CLOSED AFTER REJECT UP TO ROW ROWS INTO
RENAMED INDEX UNIQUE COMPACT SORTED BY BOUNDS ICEBERG OFF WAIT ALL AT LEAST BUT UNTIL RETAIN BATCHES AND GRANT SELECT
SCHEDULE CATCHUP WITHIN VIEW
REMOVAL KEEP WITHDRAW FRESH
"""
_WORDS = {"PARTITIONED BY", *_GRAMMAR.split(), *UNITS, *(f"{unit}S" for unit in UNITS)}
# Clauses of which only the first words belong to the grammar: expressions of the author follow.
_EXPRESSIONS = {("LET",), ("INSERT",), ("EXPECT",), ("USING",)}


def formatted(source: SourceFile) -> str:
    """Return the file in its canonical layout. Raises SqlErrors for a file that cannot be parsed."""
    before = parse(source)
    text = uncomment_header(source)
    cursor = Cursor(source, text)
    header = "\n".join(_clauses(cursor, text, before))
    behind = max(token.end + 1 for token in cursor.tokens if token.token_type is not TokenType.SEMICOLON)
    if before.query is not None:
        behind = before.span_of("AS").end
        query = text[before.span_of("AS").start : behind]
        lead = _comments(text, _joint(cursor, before), before.span_of("AS").start)
        body = "\n".join([*(line.strip() for line in lead), *(line.rstrip() for line in query.strip().splitlines())])
        layout = f"/*@\n{header}\n*/\n{body};\n" if before.in_comment else f"{header}\nAS\n{body};\n"
    else:
        layout = f"/*@\n{header}\n*/\n" if before.in_comment else f"{header};\n"
    head = _comments(text, 0, cursor.tokens[0].start)
    tail = _comments(text, behind, len(text))
    layout = "".join(f"{line}\n" for line in head) + layout + "".join(f"{line}\n" for line in tail)
    if _all_comments(SourceFile(source.path, layout, source.root)) != _all_comments(source):
        raise VarveError(f"{source.path}: the layout would lose or move a comment; the file is left as it is.")
    if _meaning(parse(SourceFile(source.path, layout, source.root))) != _meaning(before):
        raise VarveError(f"{source.path}: the layout would change what the file says; it is left as it is.")
    return layout


def _joint(cursor: Cursor, dataset: SqlDataset) -> int:
    """Return the offset behind the word AS."""
    start = dataset.span_of("AS").start
    return max((token.end + 1 for token in cursor.tokens if token.end < start), default=start)


def _clauses(cursor: Cursor, text: str, dataset: SqlDataset) -> Iterator[str]:
    """Yield the lines of the header, without AS."""
    end = dataset.span_of("AS").start if dataset.query is not None else len(text)
    tokens = [token for token in cursor.tokens if token.start < end and token.text != ";"]
    joint = None
    if dataset.query is not None:
        *tokens, joint = tokens
    places, depth, at = [0], 0, 0
    while at < len(tokens):
        cursor.place = at
        words = cursor.clause_behind_expression() if depth == 0 and at else None
        # AS within USING begins no clause, and the options of a body stand on its line.
        goes_on = words == ("AS",) or (words == ("OPTIONS",) and _ends(tokens[places[-1] :]))
        if words and not goes_on:
            places.append(at)
        depth += (tokens[at].token_type is TokenType.L_PAREN) - (tokens[at].token_type is TokenType.R_PAREN)
        at += len(words) if words else 1
    for number, place in enumerate(places):
        part = tokens[place : places[number + 1] if number + 1 < len(places) else len(tokens)]
        if number:
            before = tokens[place - 1].end + 1
            yield from (f"  {line.strip()}" for line in _comments(text, before, part[0].start))
        yield from _clause(part, text, indent="" if number == 0 or _ends(part) else "  ")
    if joint is not None:
        yield from (f"  {line.strip()}" for line in _comments(text, tokens[-1].end + 1, joint.start))


def _ends(part: Sequence[Token]) -> bool:
    """Whether a clause is the body, which stands at the left margin."""
    return part[0].text.upper() in {"EXTERNAL", "PYTHON", "SPARK", "USING"}


def _clause(part: Sequence[Token], text: str, indent: str) -> Iterator[str]:
    inner = text[part[0].start : part[-1].end + 1]
    laid_out = part[0].text.upper() == "USING" and "\n" in inner
    if laid_out or any(_comments(text, token.end + 1, following.start) for token, following in pairwise(part)):
        # Comments within a clause are kept where they are, and so are the lines of a query.
        yield from (
            f"{indent}{line.rstrip()}" if not place else line.rstrip() for place, line in enumerate(inner.splitlines())
        )
        return
    words = next((clause for clause in CLAUSES if _begins(part, clause)), ())
    line = indent + _joined(part, text, whole=words not in _EXPRESSIONS, words=len(words))
    items = list(_items(part, text, words))
    if (len(line) <= _WIDTH and not _is_columns(part)) or len(items) < 2:
        yield line
        return
    first, last, lines = _layout(part, text, words, items)
    yield f"{indent}{first}"
    for number, item in enumerate(lines):
        yield f"{indent}  {item}{',' if number + 1 < len(lines) else ''}"
    if last:
        yield f"{indent}{last}"


def _is_columns(part: Sequence[Token]) -> bool:
    return part[0].text.upper() == "CREATE" and any(token.token_type is TokenType.L_PAREN for token in part)


def _begins(part: Sequence[Token], words: Sequence[str]) -> bool:
    return [token.text.upper() for token in part[: len(words)]] == list(words)


def _layout(
    part: Sequence[Token], text: str, words: Sequence[str], items: list[Sequence[Token]]
) -> tuple[str, str, list[str]]:
    """Return the first line of a clause that takes several lines, its last line, and one line for each item."""
    whole = tuple(words) not in _EXPRESSIONS
    # An item begins with a name, which is kept even where it looks like a word of the grammar.
    lines = [
        f"{text[item[0].start : item[0].end + 1]} {_joined(item[1:], text, whole=whole, words=0)}".rstrip()
        for item in items
    ]
    place = next(at for at, token in enumerate(part) if token is items[0][0])
    first = _joined(part[:place], text, whole=True, words=0)
    return first, ")" if part[place - 1].token_type is TokenType.L_PAREN else "", lines


def _items(part: Sequence[Token], text: str, words: Sequence[str]) -> Iterator[Sequence[Token]]:
    """Yield the items between the commas of a clause: within its parentheses, where they surround the whole list."""
    del text
    start = max(1, len(words))
    if part[0].text.upper() == "CREATE":
        start = next((at for at, token in enumerate(part) if token.token_type is TokenType.L_PAREN), len(part))
    end = len(part)
    if start < end and _surrounded(part[start:]):
        start, end = start + 1, end - 1
    depth, begin = 0, start
    for at in range(start, end):
        token = part[at]
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.COMMA:
            yield part[begin:at]
            begin = at + 1
    if begin < end:
        yield part[begin:end]


def _surrounded(part: Sequence[Token]) -> bool:
    """Whether the first token is a parenthesis that the last one closes."""
    depths = list(
        accumulate((token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN) for token in part)
    )
    return depths[0] == 1 and depths[-1] == 0 and 0 not in depths[:-1]


def _joined(part: Sequence[Token], text: str, *, whole: bool, words: int) -> str:
    """Return the tokens on one line, with at most one blank where there was space between them."""
    line = ""
    for at, token in enumerate(part):
        quoted = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
        word = text[token.start : token.end + 1]
        word = word if quoted else re.sub(r"\s+", " ", word)
        if (
            not quoted
            and (whole or at < words)
            and word.upper() in _WORDS
            and (at == 0 or text[token.start - 1] != ".")
        ):
            word = word.upper() if _is_word(part, at, text) else word
        if at:
            gap = text[part[at - 1].end + 1 : token.start]
            opened = part[at - 1].token_type is TokenType.L_PAREN or token.token_type is TokenType.R_PAREN
            tight = opened or token.token_type is TokenType.COMMA
            line += "" if tight or not gap else " "
            if part[at - 1].token_type is TokenType.COMMA and not line.endswith(" "):
                line += " "
        line += word
    return line


def _is_word(part: Sequence[Token], at: int, text: str) -> bool:
    """Whether a token is a word of the grammar at this place: a name may look like one."""
    after = part[at + 1].text if at + 1 < len(part) else ""
    before = part[at - 1].text if at else ""
    # A name stands first in a list, before a type, an equals sign or IN.
    named = before in {"(", ","} and text[part[at].start :].split(maxsplit=1)[0].upper() not in {
        "INTERVAL", "CRON", "START", "END", "LAST", "RETENTION", "TIMEZONE", "ANCHOR",
    }  # fmt: skip
    return not named and after != "="


def _comments(text: str, start: int, end: int) -> list[str]:
    """Return the comments between two offsets, one a line."""
    gap = text[start:end]
    return [match.group().rstrip() for match in re.finditer(r"--[^\n]*|/\*(?!@).*?\*/", gap, re.DOTALL)]


def _all_comments(source: SourceFile) -> list[str]:
    """Return all comments of a file, sorted, without their layout."""
    text = uncomment_header(source)
    tokens = Cursor(source, text).tokens
    ends = [0, *(token.end + 1 for token in tokens)]
    starts = [*(token.start for token in tokens), len(text)]
    gaps = zip(ends, starts, strict=True)
    return sorted(" ".join(comment.split()) for start, end in gaps for comment in _comments(text, start, end))


def _meaning(dataset: SqlDataset) -> object:
    """Return everything that a file declares, without places: formatting must not change it."""
    return (
        dataset.name, dataset.body, dataset.comment, dataset.owners, dataset.tags, dataset.store, dataset.is_view,
        [(column.name, column.type, column.comment, column.nullable) for column in dataset.columns],
        [(column.name, column.type, column.comment) for column in dataset.partition_columns],
        [[*generator.variables, *(str(vars(generator).get(name)) for name in vars(generator) if name != "span")]
         for generator in dataset.generators],
        [
            [(named.name, named.expression.sql("spark")) for named in named_expressions]
            for named_expressions in (dataset.lets, dataset.inserts, dataset.expectations)
        ],
        dataset.on_upstream_change, dataset.on_code_change, dataset.forward_from,
        dataset.refresh_last, dataset.end_offset, dataset.incremental,
        dataset.reject_into, dataset.allows, [(index.names, index.unique) for index in dataset.indexes],
        dataset.compact, [column.name for column in dataset.sorted_by],
        [column.name for column in dataset.bounds], dataset.iceberg,
        [grant.name for grant in dataset.grants], dataset.retain_batches, dataset.retain_last,
        dataset.fresh_within,
        [(wait.wait, [name for name, _ in wait.datasets]) for wait in dataset.waits],
        dataset.schedule, dataset.catchup, dataset.rebuild_within, [name for name, _ in dataset.rebuild_within_of],
        [name for name, _ in dataset.full_scans], dataset.options, dataset.entry,
        [query.sql("spark") for query in dataset.queries], dataset.in_comment,
    )  # fmt: skip
