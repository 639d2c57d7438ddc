"""What people write by habit of another SQL, and what to write instead.

Not here: what Spark itself refuses (refused.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from pipeline_defs.sql.body import span_of
from pipeline_defs.sql.errors import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline_defs.sql.errors import Problem
    from pipeline_defs.sql.source import SqlDataset

# Functions that Spark has not, under the name that they have elsewhere.
INSTEAD = {
    "IFF": "IF(condition, then, else)",
    "SAFE_CAST": "TRY_CAST(... AS type)",
    "GETDATE": "t_end, the end of the scope's window",
    "SYSDATE": "t_end, the end of the scope's window",
    "STRFTIME": "DATE_FORMAT(value, 'yyyy-MM-dd')",
    "DATE_PARSE": "TO_DATE(text, 'yyyy-MM-dd')",
    "STR_TO_DATE": "TO_DATE(text, 'yyyy-MM-dd')",
    "PARSE_DATE": "TO_DATE(text, 'yyyy-MM-dd')",
    "TO_VARCHAR": "TO_CHAR(number, format) or DATE_FORMAT(date, format)",
    "ARRAY_TO_STRING": "ARRAY_JOIN(values, ',')",
    "ZEROIFNULL": "COALESCE(value, 0)",
    "GROUP_CONCAT": "LISTAGG(value, ',')",
    "IDENTIFIER": "db.table: which datasets are read must stand in the text",
}


def habits(sql: SqlDataset, query: exp.Query) -> Iterator[Problem]:
    """Functions and names of other dialects."""
    for node in query.find_all(exp.Anonymous, exp.Unnest):
        name = "UNNEST" if isinstance(node, exp.Unnest) else node.name.upper()
        instead = "LATERAL VIEW EXPLODE(values) e AS value" if name == "UNNEST" else INSTEAD.get(name)
        if instead is not None:
            yield sql.problem(called(sql, node, name), f"Spark has no {name} that is of use here; write {instead}.")
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and "." in table.name and not table.db:
            yield sql.problem(
                sql.span_at(table), f"in one pair of backticks this is one name; write {table.name} without them."
            )


def called(sql: SqlDataset, node: exp.Expr, name: str) -> Span:
    """Where a call without arguments stands: the parser keeps no place for it."""
    if found := span_of(node):
        return found
    within = sql.span_of("AS") if sql.query is not None else Span(0, len(sql.source.text))
    word = re.compile(rf"\b{name}\b", re.IGNORECASE).search(sql.source.text, within.start)
    return Span(word.start(), word.end()) if word else within
