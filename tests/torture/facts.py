"""What every table must show, as pure functions of the version of a file and the number of the code: the model.

A file says of itself which version of which day it is, and every table carries that on. So one look at any table tells
whether it is a state that was ever published, whoever looks, and whatever is going on.

Not here: which states may be current when (model.py).
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass

FIRST_DAY = dt.date(2026, 9, 7)
DAYS = tuple(FIRST_DAY + dt.timedelta(days=number) for number in range(6))
WINDOW = 3
# Sold at least once on every day, and dearer than any code leaves out.
DEAR, DEAR_CENTS = "gold", 100_000


@dataclass(frozen=True, order=True)
class State:
    """Of which file and, downstream, by which code a partition was made."""

    version: int
    code: int = 0


def file_rows(day: dt.date, version: int) -> list[tuple[str, int, int]]:
    """The rows of a version of a day's file: product, cents, version."""
    draw = random.Random(f"{day} {version}")
    rows = [(f"p{draw.randrange(8)}", draw.randrange(1_000), version) for _ in range(draw.randint(1, 40))]
    return sorted([*rows, (DEAR, DEAR_CENTS + version, version)])


def revenue(day: dt.date, state: State) -> list[tuple[str, int, int, int]]:
    """Product, cents, version, code: what was dearer than a hundred times the code."""
    by_product: dict[str, int] = {}
    for product, cents, _ in file_rows(day, state.version):
        if cents > 100 * state.code:
            by_product[product] = by_product.get(product, 0) + cents
    return sorted((product, cents, state.version, state.code) for product, cents in by_product.items())


def totals(day: dt.date, state: State) -> tuple[int, int, int, int]:
    """Products, cents, version, code."""
    rows = revenue(day, state)
    return len(rows), sum(row[1] for row in rows), state.version, state.code


def trailing_cents(made_from: str) -> int:
    """The cents of the days that a row of `trailing` says it was made from: `2026-09-07:3:1,2026-09-08:1:1`."""
    return sum(totals(day, state)[1] for day, state in parts(made_from))


def parts(made_from: str) -> list[tuple[dt.date, State]]:
    """The days and states that are written so."""
    written = [part.rsplit(":", 2) for part in made_from.split(",")]
    return [(dt.date.fromisoformat(day), State(int(version), int(code))) for day, version, code in written]


def made_from(states: dict[dt.date, State], day: dt.date) -> str:
    """The text of a row of `trailing`, given the states of revenue."""
    window = [day - dt.timedelta(days=number) for number in range(WINDOW)]
    return ",".join(f"{each}:{states[each].version}:{states[each].code}" for each in sorted(window) if each in states)
