"""Parses the first clause of a file, `CREATE DATASET db.table`.

Not here: the columns behind the name (clauses.py).
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from varve.sql.syntax.errors import Span

if TYPE_CHECKING:
    from varve.sql.syntax.tokens import Cursor

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def parse_create(at: Cursor) -> tuple[str, Span]:
    """Parse `CREATE DATASET db.table`; return the name and its place. Raises SqlError."""
    if at.token is None:
        at.fail("the file is empty; write CREATE DATASET db.table, its clauses, and AS SELECT ....", Span(0, 1))
    if at.sees("SELECT") or at.sees("WITH"):
        at.fail(
            "a file begins with its header, and this is only a query; write CREATE DATASET db.table ... AS before it."
        )
    at.needs("CREATE", "DATASET", example="CREATE DATASET db.table")
    start = at.span.start
    db, _ = at.name("a name", example="CREATE DATASET db.table")
    if not at.takes("."):
        at.fail(
            f"a dataset is named db.table, found only {db}; write for example shop.{db.lower()}.",
            Span(start, at.behind),
        )
    table, _ = at.name("the table's name", example=f"{db}.sales")
    if at.sees(".") or at.sees("-"):
        sign = at.shown_token
        while at.takes(".") or at.takes("-"):
            at.place += at.token is not None and not at.clause() and not at.sees("(")
        at.fail(
            f"a name is db.table, of letters, digits and _; found {sign} behind {db}.{table}. Write "
            f"for example {db}.{table}_daily.",
            Span(start, at.behind),
        )
    span = Span(start, at.behind)
    if not (_NAME.fullmatch(db) and _NAME.fullmatch(table)):
        at.fail(
            f"names are of letters a to z, digits and _, a letter first; write {_plain(db)}.{_plain(table)}.",
            span,
        )
    return f"{db}.{table}", span


def _plain(name: str) -> str:
    """The name as it may be: `Größe` is `grosse`."""
    ascii_only = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"^[^a-z]+", "", re.sub(r"\W+", "_", ascii_only)) or "name"
