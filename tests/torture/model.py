"""The simple model: which states may be current when all is at rest, and which a reader may ever see.

Not here: what a state holds (facts.py), and looking (readers.py, rest.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.torture import facts
from tests.torture.facts import State

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

# Rows of a lake's partition, or the row of a warehouse's.
Shown = list[tuple[object, ...]]


@dataclass
class Model:
    """What was done so far.

    Attributes:
        sent: by day, the version of the last file that was made.
        landed: by day, the version of the file that lies in the landing folder: a correction may have been refused.
        codes: every code that was ever written; the last is in the file now.
        shown: the days of each dataset that readers must see, as they were there at rest.
        rolled_back: by dataset and day, what a rollback made current; as long as nothing else is computed there.
    """

    sent: dict[dt.date, int] = field(default_factory=dict)
    landed: dict[dt.date, int] = field(default_factory=dict)
    codes: list[int] = field(default_factory=lambda: [1])
    shown: dict[str, set[dt.date]] = field(default_factory=dict)
    rolled_back: dict[tuple[str, dt.date], list[Shown]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def numbered(self, day: dt.date) -> int:
        """The version of a file that is about to be sent: readers may see it from now on."""
        with self.lock:
            self.sent[day] = self.sent.get(day, 0) + 1
            return self.sent[day]

    def edit(self, code: int) -> None:
        """The code that is about to be written."""
        with self.lock:
            self.codes.append(code)

    # What any reader at any time may see ------------------------------------------------------------------------------

    def problem_of(self, dataset: str, day: dt.date, rows: Sequence[tuple[object, ...]]) -> str | None:
        """Why these rows of a day are no state that was ever to be published; None where they are one."""
        try:
            wanted = self._of_itself(dataset, day, rows)
        except (ValueError, IndexError, TypeError, KeyError) as error:
            return f"{dataset} {day}: no state can be told from {rows!r} ({error!r})"
        return None if sorted(rows) == wanted else f"{dataset} {day}: shows {sorted(rows)!r}, and is {wanted!r}"

    def problem_of_days(self, dataset: str, days: set[dt.date]) -> str | None:
        """Why these days cannot be all that a reader sees."""
        missing = self.shown.get(dataset, set()) - days
        return f"{dataset}: {', '.join(map(str, sorted(missing)))} cannot be seen any more" if missing else None

    def _of_itself(self, dataset: str, day: dt.date, rows: Sequence[tuple[object, ...]]) -> Shown:
        """The whole state that the rows say they are of. Raises ValueError where there is no such state."""
        if dataset == "trailing":
            ((_, made_from),) = rows
            written = facts.parts(str(made_from))
            for each, state in written:
                self._check(each, state)
            if facts.made_from(dict(written), day) != made_from:
                raise ValueError(f"{made_from} is not of the days before")
            return [(facts.trailing_cents(str(made_from)), made_from)]
        if dataset == "sales":
            state = State(int(str(rows[0][2])))
            self._check(day, state)
            return list(facts.file_rows(day, state.version))
        state = State(int(str(rows[0][2])), int(str(rows[0][3])))
        self._check(day, state)
        return list(facts.revenue(day, state)) if dataset == "revenue" else [facts.totals(day, state)]

    def _check(self, day: dt.date, state: State) -> None:
        if not 1 <= state.version <= self.sent.get(day, 0):
            raise ValueError(f"version {state.version} of {day}, of which {self.sent.get(day, 0)} were sent")
        if state.code and state.code not in self.codes:
            raise ValueError(f"code {state.code}, which was never written")

    # What must be current at rest -------------------------------------------------------------------------------------

    def problems_at_rest(self, current: dict[str, dict[dt.date, Shown]]) -> list[str]:
        """What is not as it must be, once nothing is due any more: each partition is what its inputs make of it.

        Where a rollback has put something else, that may stay: the sensors leave it alone until an input changes.
        """
        problems = []
        for dataset in ("sales", "revenue", "totals", "trailing"):
            for day in facts.DAYS:
                wanted = self._computed(dataset, day, current)
                found = current[dataset].get(day)
                if found == wanted:
                    self.rolled_back.pop((dataset, day), None)
                elif found not in self.rolled_back.get((dataset, day), []):
                    problems.append(f"{dataset} {day}: {found!r} is current, and its inputs make {wanted!r}")
        return problems

    def at_rest(self, current: dict[str, dict[dt.date, Shown]]) -> None:
        """Note what readers must see from now on."""
        self.shown = {dataset: set(days) for dataset, days in current.items()}

    def _computed(self, dataset: str, day: dt.date, current: dict[str, dict[dt.date, Shown]]) -> Shown | None:
        """What its current inputs make of a partition; None where nothing can be made of it yet."""
        if dataset == "sales":
            return list(facts.file_rows(day, self.landed[day])) if day in self.landed else None
        if dataset == "revenue":
            if (sales := current["sales"].get(day)) is None:
                return None
            return list(facts.revenue(day, State(int(str(sales[0][2])), self.codes[-1])))
        states = {each: State(int(str(rows[0][2])), int(str(rows[0][3]))) for each, rows in current["revenue"].items()}
        if dataset == "totals":
            return [facts.totals(day, states[day])] if day in states else None
        text = facts.made_from(states, day)
        # Its window is whole, or reaches before the first day there is.
        window = {each for each in facts.DAYS if 0 <= (day - each).days < facts.WINDOW}
        return [(facts.trailing_cents(text), text)] if window <= set(states) else None
