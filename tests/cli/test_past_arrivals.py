"""Files whose retention is over, and which were there in time: told in one line, and nobody is called for them."""

from __future__ import annotations

from dataclasses import asdict
from io import StringIO

import dagster as dg
from rich.console import Console

from varve.cli.batches.findings import of_rejected
from varve.cli.problems.rejected import show_rejected
from varve.dagster.automation.arrival_checks import checked
from varve.planning.arrivals.arrivals import Rejected
from varve.planning.arrivals.landing_file import RejectionKind

PAST = [
    Rejected(f"/landing/{day}.csv", RejectionKind.PAST, "its retention of 2 days is over", 1.0, 1.0, f"day={day}")
    for day in ("2026-11-18", "2026-11-19")
]
WRONG = Rejected("/landing/x.csv", RejectionKind.NO_KEY, "x is no day", 1.0, 1.0)


def test_they_are_one_line_no_finding_and_no_failed_check() -> None:
    values = [{**asdict(arrival), "kind": str(arrival.kind), "dataset": "shop.sales"} for arrival in (*PAST, WRONG)]
    text = StringIO()
    show_rejected(Console(file=text, width=200), values)
    assert text.getvalue().splitlines() == [
        "rejected (no key): shop.sales /landing/x.csv: x is no day (since 1.0)",
        "past: shop.sales: 2 arrivals were there in time, and the retention is over; --json lists them all.",
    ]
    assert [finding.problem for finding in of_rejected(values)] == [
        "/landing/x.csv arrived and is not taken: x is no day"
    ]
    key = dg.AssetKey(["shop", "sales"])
    assert checked(key, PAST).passed
    assert not checked(key, [*PAST, WRONG]).passed
