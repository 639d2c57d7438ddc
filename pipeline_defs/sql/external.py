"""EXTERNAL: what others produce, and where it is found.

Not here: looking there (resources/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_defs.sql.source import Body, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline_defs.sql.errors import Problem


def external_problems(sql: SqlDataset) -> Iterator[Problem]:
    """A source that is unknown, or that is not said whole."""
    if sql.body is not Body.EXTERNAL:
        return
    source = sql.option("source") or "landing"
    if source not in {"landing", "table"}:
        yield sql.problem(sql.span_of("OPTIONS"), f"source '{source}' is unknown; it is 'landing' or 'table'.")
    if source == "table" and not sql.option("table"):
        yield sql.problem(sql.span_of("OPTIONS"), "which table? Write OPTIONS (source = 'table', table = 'db.name').")
