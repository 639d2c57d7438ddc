"""Parses the clauses that say how batches are stored: INDEX, COMPACT, SORTED BY, BOUNDS, GRANT.

Not here: whether the columns that they name are there (varve/sql/checks/storage.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from varve.model.store_options import Period
from varve.sql.syntax.sql_file import DeclaredIndex, NamedColumn, NamedRole

if TYPE_CHECKING:
    from varve.sql.syntax.tokens import Cursor

_INDEX = "INDEX (product), UNIQUE (carrier, flight)"


def parse_indexes(at: Cursor) -> tuple[DeclaredIndex, ...]:
    """Parse `[UNIQUE] (column, ...) {, ...}`. Raises SqlError."""
    indexes = list[DeclaredIndex]()
    while True:
        begin = at.span
        unique = at.takes("UNIQUE")
        index = DeclaredIndex(parse_column_names(at, _INDEX), unique)
        if any(index.names == other.names for other in indexes):
            at.fail("this index is declared twice; take one of them out.", begin)
        indexes.append(index)
        if not at.takes(","):
            return tuple(indexes)


def parse_period(at: Cursor) -> Period:
    """Parse the period of COMPACT. Raises SqlError."""
    choice = at.choice("the period whose tables are put together", *(period.upper() for period in Period))
    return Period(choice.lower())


def parse_roles(at: Cursor) -> tuple[NamedRole, ...]:
    """Parse the roles of GRANT SELECT TO: names, or texts where they have other signs. Raises SqlError."""
    roles = dict[str, NamedRole]()
    while True:
        is_text = at.token is not None and at.token.token_type is TokenType.STRING
        if at.clause():
            at.fail(f"expected a role, found {at.shown_token}; write for example GRANT SELECT TO analysts, 'bi-team'.")
        name, span = (
            at.string("a role") if is_text else at.name("a role", example="GRANT SELECT TO analysts, 'bi-team'")
        )
        name = name if is_text else name.lower()
        if name in roles:
            at.fail(f"{name} is named twice; take one out.", span)
        roles[name] = NamedRole(name, span)
        if not at.takes(","):
            return tuple(roles.values())


def parse_column_names(at: Cursor, example: str) -> tuple[NamedColumn, ...]:
    """Parse the names of columns between parentheses: one or more, each once. Raises SqlError."""
    opened = at.span
    at.needs("(", example=example)
    columns = dict[str, NamedColumn]()
    while not at.takes(")"):
        name, span = at.name("a column", example=example)
        if name.lower() in columns:
            at.fail(f"{name} is named twice; take one out.", span)
        columns[name.lower()] = NamedColumn(name, span)
        if not at.sees(")"):
            at.needs(",", example=example)
    if not columns:
        at.fail(f"there is no column between the parentheses; write for example {example}.", opened)
    return tuple(columns.values())
