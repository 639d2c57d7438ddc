"""Suggests what to write for a word that begins no clause of a header.

Not here: the clauses (tokens.py, header.py).
"""

from __future__ import annotations

from varve.model.errors import nearest
from varve.sql.syntax.tokens import CLAUSES, clause_names

_OF_TIMESERIES = {"RETENTION", "START", "END", "LAST", "TIMEZONE", "ANCHOR", "INTERVAL", "CRON", "TIMESERIES"}
# Clauses of CREATE TABLE.
_OF_TABLES = {
    "STORED": "Write STORED IN LAKE or STORED IN WAREHOUSE.",
    "LOCATION": "Where it lies is Varve's; leave it out, or write STORED IN WAREHOUSE.",
    "TBLPROPERTIES": "Write TAGS (name = 'value').",
    "CLUSTERED": "Leave it out.",
    "RETAIN": "Write RETAIN BATCHES 30 DAYS, of batches that were replaced; RETENTION of TIMESERIES is of windows.",
    "FRESH": "Write FRESH WITHIN 2 HOURS, of the end of a window.",
    "GRANT": "Write GRANT SELECT TO analysts.",
    "SORTED": "Write SORTED BY (product).",
    "PARTITION": "Write PARTITIONED BY (day STRING).",
    "PARTITIONED": "Write PARTITIONED BY (day STRING).",
    "WHERE": "A condition stands in the query, behind AS SELECT ....",
}


def clause_hint(word: str) -> str:
    """Return a hint what to write for a word that begins no clause."""
    if word.upper() in _OF_TIMESERIES:
        return f" {word.upper()} belongs into FOR t IN TIMESERIES(...)."
    if word.upper() in {"SELECT", "WITH"}:
        return " The query begins with AS; write AS SELECT ...."
    if word.upper() in _OF_TABLES:
        return f" {_OF_TABLES[word.upper()]}"
    return nearest(word, _known_words()) or f" Clauses are {', '.join(clause_names(CLAUSES))}."


def _known_words() -> list[str]:
    return [word for clause in clause_names(CLAUSES) for word in (clause, clause.split(maxsplit=1)[0])]
