"""The version of a dataset's code: a hash of what determines its rows, and of nothing else.

Comments, layout, owners, descriptions of columns, the names of LET variables and the order in which they stand do not
count. The query, the foreign code with what it imports from the project, and the rules of this engine do.

Not here: what follows where a version differs from the deployed one (varve/planning/judgement).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType

from varve.model.partitions.own_calendar import Calendar
from varve.sql.code.foreign import foreign_text
from varve.sql.names.own_functions import queried_functions
from varve.sql.names.written_query import Edit, UnplacedName, text_of, written_query
from varve.sql.syntax.lexer import tokens_of
from varve.sql.syntax.sql_file import ValueList

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot.tokenizer_core import Token

    from varve.model.dataset import Dataset
    from varve.sql.syntax.sql_file import Generator, SqlDataset

# To be raised by one where the same declaration gives other rows than before: every dataset is then made by other code.
ENGINE_SEMANTICS = 1
# Tokens whose capitals matter; keywords are the same in any case.
_AS_WRITTEN = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.HINT}


def version_of(parts: Iterable[object]) -> str:
    """A hash of these parts and of the engine's rules, as 16 hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=8)
    for part in (ENGINE_SEMANTICS, *parts):
        text = str(part)
        hashed.update(f"{len(text)}:{text}".encode())
    return hashed.hexdigest()


def code_version(sql: SqlDataset) -> str:
    """The version of the code of a SQL file."""
    lets = _lets(sql)
    inserts = _inserts(sql, lets)
    return version_of(
        [
            sql.columns and [(column.name.lower(), column.type) for column in sql.columns],
            [(column.name.lower(), column.type) for column in sql.partition_columns],
            [
                (
                    *generator.variables,
                    _tiling(generator),
                    getattr(generator, "timezone", None),
                    *_values_behind_keys(generator, inserts),
                )
                for generator in sql.generators
            ],
            sorted(inserts.items()),
            sql.body,
            sql.entry,
            sorted(sql.options),
            # The limit of rejected rows does not change the rows of a batch.
            "" if sql.reject_into is None else sql.reject_into.dataset,
            *_queries(sql, lets),
            foreign_text(sql.entry, sql.source.root),
            *(function.meaning for function in queried_functions(sql)),
        ]
    )


def dataset_meaning(dataset: Dataset) -> list[object]:
    """What a declaration in Python says of the rows: names and types, how partitions are cut, where files come from."""
    return [
        dataset.name,
        [(column.name.lower(), str(column.type)) for column in dataset.schema.columns],
        [(dimension.name, *_cut(dimension)) for dimension in dataset.partitioning.dimensions],
        dataset.landing,
        dataset.external,
        "" if dataset.reject_into is None else dataset.reject_into.dataset,
    ]


def canonical(written: str) -> str:
    """Return a query in a canonical layout: its tokens with one blank between them, keywords in capitals."""
    tokens = tokens_of(written)
    names = _places_of_names(tokens)
    parts = []
    for place, token in enumerate(tokens):
        text = written[token.start : token.end + 1]
        if token.token_type in _AS_WRITTEN or not text.replace(" ", "").isalpha():
            parts.append(text)
        elif place in names and text != text.lower():
            # Readers see its capitals. In small letters it counts as ever, for the sake of what is deployed.
            parts.append(f"`{text}`")
        else:
            parts.append(text.upper())
    return " ".join(parts)


def _places_of_names(tokens: Sequence[Token]) -> set[int]:
    """The places of keywords that are names of columns and fields: `1 AS Date`, `STRUCT<Date: INT>`."""
    places, brackets = set[int](), [""]
    for place, token in enumerate(tokens):
        kind, before = token.token_type, tokens[place - 1] if place else None
        last = None if before is None else before.token_type
        is_alias = last is TokenType.ALIAS and brackets[-1] not in {"CAST(", "TRY_CAST("}
        if is_alias or (last in {TokenType.LT, TokenType.COMMA} and brackets[-1] == "STRUCT<"):
            places.add(place)
        if kind is TokenType.L_PAREN or (kind is TokenType.LT and last in Parser.NESTED_TYPE_TOKENS):
            brackets.append(("" if before is None else before.text.upper()) + token.text)
        elif len(brackets) > 1 and (kind is TokenType.R_PAREN or (kind is TokenType.GT and brackets[-1].endswith("<"))):
            brackets.pop()
    return places


def _cut(dimension: object) -> tuple[object, ...]:
    """How a dimension cuts time; which keys it has, and so which windows a calendar lists, changes no row of others."""
    columns = getattr(dimension, "columns", ())
    if isinstance(tiling := getattr(dimension, "tiling", None), Calendar):
        return (str(tiling), getattr(dimension, "timezone", None), *([columns] if columns else []))
    return (getattr(dimension, "calendar", type(dimension).__name__), *([columns] if columns else []))


def _tiling(generator: Generator) -> object:
    """How a series divides time. More windows of a calendar, or fewer, change the rows of no other window."""
    tiling = getattr(generator, "tiling", None)
    return str(tiling) if isinstance(tiling, Calendar) else tiling


def _values_behind_keys(generator: Generator, inserts: Mapping[str, str]) -> tuple[object, ...]:
    """The values of a list whose variable is no key itself: the same key may be made of another value then.

    Where it is the key, a further value of the list changes no row of others, and no version.
    """
    keys = {text.lower().removeprefix(":") for text in inserts.values()}
    if not isinstance(generator, ValueList) or generator.variable.lower() in keys:
        return ()
    return (generator.values,)


def _lets(sql: SqlDataset) -> dict[str, str]:
    """The expressions of LET by name, each with those before it put in."""
    lets: dict[str, str] = {}
    for let in sql.lets:
        lets[let.name] = f"({_expanded(let.text, lets)})"
    return lets


def _inserts(sql: SqlDataset, lets: Mapping[str, str]) -> dict[str, str]:
    """For each partition column the expression of its value; without INSERT it is the variable of that name."""
    inserts = {insert.name: _expanded(insert.text, lets) for insert in sql.inserts}
    for column in sql.partition_columns:
        name = column.name.lower()
        inserts.setdefault(name, lets.get(name, name))
    return {name: text.removeprefix("(").removesuffix(")") if text in lets.values() else text
            for name, text in inserts.items()}  # fmt: skip


def _queries(sql: SqlDataset, lets: Mapping[str, str]) -> list[str]:
    texts = [f"{using.name} AS" for using in sql.using]
    names = {**lets, **_moments_of_lets(sql, lets), **_of_the_session(sql)}
    for query, span in zip(sql.queries, sql.query_spans, strict=True):
        written = written_query(sql, query)
        try:
            edits = [
                Edit.of(
                    mention.span.start,
                    mention.span.end,
                    names[mention.name] + (f" AS {mention.name}" if mention.is_result else ""),
                )
                for mention in written.mentions
                if mention.name in names
            ]
            text = text_of(written.pieces(edits), str)
        except UnplacedName:
            # A query that cannot be run as it is written is refused elsewhere; here its names count.
            text = sql.source.text[span.start : span.end]
        texts.append(canonical(text))
    return texts


def _of_the_session(sql: SqlDataset) -> dict[str, str]:
    """How variables of a series count that a query names itself, where its session has another zone than the series.

    CAST(t AS DATE) is another day there than in LET.
    """
    return {
        name: f"`{name} in the zone of the session`"
        for generator in sql.generators
        if _has_another_zone(generator)
        for name in generator.variables
    }


def _moments_of_lets(sql: SqlDataset, lets: Mapping[str, str]) -> dict[str, str]:
    """How a moment of LET counts in a query that names it, where that has another zone than the series.

    TIMESTAMP '2022-03-01 00:00:00' is another moment there. Where LET names a variable, `_of_the_session` tells them
    apart.
    """
    if not any(map(_has_another_zone, sql.generators)):
        return {}
    variables = {name for generator in sql.generators for name in generator.variables}
    moments = {}
    for name, text in lets.items():
        words = {token.text.lower() for token in tokens_of(text) if token.token_type is not TokenType.STRING}
        if words.isdisjoint(variables) and any("timestamp" in word or word == "date_trunc" for word in words):
            moments[name] = f"{text} `in the zone of the series`"
    return moments


def _has_another_zone(generator: Generator) -> bool:
    """Whether its expressions are evaluated in another time zone than the queries, whose zone is UTC."""
    return getattr(generator, "timezone", None) not in {None, "UTC"}


def _expanded(text: str, lets: Mapping[str, str]) -> str:
    """An expression of LET or INSERT in its canonical layout, with the variables of LET put in."""
    tokens = tokens_of(text)
    parts: list[str] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1].token_type if place else None
        after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        name = token.text.lower()
        is_word = token.token_type not in {TokenType.STRING, TokenType.NUMBER}
        if is_word and name in lets and TokenType.DOT not in {before, after} and after is not TokenType.L_PAREN:
            if before is TokenType.COLON:
                parts.pop()
            parts.append(lets[name])
        else:
            parts.append(canonical(text[token.start : token.end + 1]))
    return " ".join(parts)
