"""`varve backfill`: what would be computed again, in how many runs, at what cost; then the marks, and how far it is."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.plan.looking import looking
from varve.cli.printing import Table
from varve.cli.selection import who
from varve.cli.show import dataset_named
from varve.model.errors import UnknownPartition, VarveError, counted
from varve.planning import run_requests as triggers
from varve.planning.backfill import selected, with_downstream
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """What a backfill does in one dataset; `seconds` None: no run of it is known."""

    dataset: str
    paths: Sequence[str]
    runs: int
    seconds: float | None


def plan(
    name: str, words: Sequence[str], *, first: str | None, last: str | None, downstream: str
) -> list[BackfillPart]:
    """What would be marked, upstream first; marks nothing. Raises VarveError, naming what is wrong."""
    dataset = dataset_named(name, chosen_graph())
    if dataset.rejected_of:
        raise VarveError(
            f"{dataset} holds the rejected rows of {dataset.rejected_of}, whose runs write both. Nothing was marked. "
            f"Run varve backfill {dataset.rejected_of}."
        )
    given = dict(_pair(dataset.name, word) for word in words)
    with looking() as found:
        now = pendulum.now("UTC")
        keys = selected(dataset, first=first, last=last, words=given, members=found.members, now=now)
        named = _downstream(downstream)
        marked = with_downstream(chosen_graph(), dataset, keys, named, members=found.members, now=now)
        costs = Backfills(found.connection).costs(list(marked))
    limit = chosen_settings().partitions_per_run
    parts = []
    for each, listed in marked.items():
        if chosen_graph().datasets[each].rejected_of:
            # The runs of the landing dataset write it.
            continue
        dues = [triggers.Due(key, frozenset(), "") for key in listed]
        policy = chosen_graph().datasets[each].policy
        count = len(triggers.runs(chosen_graph().datasets[each], dues, limit=policy.partitions_per_run or limit))
        cost = costs.get(each)
        # As if cost followed partitions: too much rather than too little, as a run costs seconds whatever it holds.
        seconds = None if cost is None else cost.seconds * max(count, math.ceil(len(listed) / cost.partitions))
        parts.append(BackfillPart(each, [key.path for key in listed], count, seconds))
    return parts


def start(parts: Sequence[BackfillPart], *, reason: str) -> int:
    """Mark them; the number of the backfill."""
    with _backfills() as backfills:
        return backfills.add({part.dataset: part.paths for part in parts}, reason=reason or "a backfill", owner=who())


def listed() -> list[dict[str, Any]]:
    """All backfills as plain values, the newest first."""
    with _backfills() as backfills:
        return [
            {
                "number": one.number,
                "state": one.state,
                "reason": one.reason,
                "owner": one.owner,
                "created_at": one.created_at.isoformat(timespec="seconds"),
                "marked": dict(one.marked),
                "left": dict(one.left),
            }
            for one in backfills.listed()
        ]


def change(console: Console, number: int, how: str) -> None:
    """Pause, resume or cancel one, and say how far it is."""
    with _backfills() as backfills:
        changes = {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel}
        found = changes[how](number)
    done = sum(found.marked.values()) - sum(found.left.values())
    console.print(
        f"Backfill {number} is {found.state}; {done:,} of {counted(sum(found.marked.values()), 'partition')} done."
    )


def as_values(parts: Sequence[BackfillPart], number: int | None) -> dict[str, Any]:
    """The plan for `--json`."""
    return {
        "backfill": number,
        "datasets": [
            {"dataset": part.dataset, "partitions": list(part.paths), "runs": part.runs, "seconds": part.seconds}
            for part in parts
        ],
    }


def show_plan(console: Console, parts: Sequence[BackfillPart], number: int | None) -> None:
    """The plan for people."""
    table = Table("dataset", "partitions", "from", "to", "runs", "about", title="To be computed again, in this order",
                  title_justify="left")  # fmt: skip
    for part in parts:
        cost = "unknown" if part.seconds is None else _spelt(part.seconds)
        table.add_row(part.dataset, f"{len(part.paths):,}", part.paths[0], part.paths[-1], f"{part.runs:,}", cost)
    console.print(table)
    if number is None:
        console.print("Nothing was marked: this was a dry run.")
    else:
        console.print(
            f"Backfill {number} is running: the sensors launch it, after fresh data. Until each partition is replaced, "
            "its old batch is served. `varve backfill list` shows how far it is."
        )


def show_listed(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """The backfills for people."""
    table = Table("number", "state", "done", "reason", "by", "since", title_justify="left")
    for one in found:
        total, left = sum(one["marked"].values()), sum(one["left"].values())
        table.add_row(
            str(one["number"]), one["state"], f"{total - left:,} of {total:,}", one["reason"], one["owner"],
            one["created_at"],
        )  # fmt: skip
    console.print(table if found else "There are no backfills.")


def _pair(name: str, word: str) -> tuple[str, str]:
    column, equals, value = word.partition("=")
    if not equals:
        raise UnknownPartition(f"{word!r} names no column of {name}; write column=value.")
    return column, value


def _downstream(text: str) -> list[str] | None:
    if text in {"none", "all"}:
        return [] if text == "none" else None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(chosen_graph().datasets)):
        raise VarveError(f"no dataset {', '.join(unknown)}; there are {', '.join(sorted(chosen_graph().datasets))}.")
    return names


@contextmanager
def _backfills() -> Iterator[Backfills]:
    with connect(chosen_settings(), application="varve backfill") as connection:
        Catalog(connection).ensure_schema()
        yield Backfills(connection)


def _spelt(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
