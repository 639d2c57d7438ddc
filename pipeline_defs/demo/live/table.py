"""The output of the live demo: a live table in a terminal, plain lines elsewhere, and the same lines in a log file."""

from __future__ import annotations

import datetime as dt
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - of a dataclass
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from varve.cli.printing import Table

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_defs.demo.live.reader import CheckedReader
    from pipeline_defs.demo.live.watching import Journey, Watch

STAGES = ("recorded", "run", "published", "in the view", "seen")
_ROWS = 14


@dataclass
class Screen:
    """The output of the demo while it runs.

    Attributes:
        console: where to print; None where only the result is printed.
        log: the path of a file that gets every line.
    """

    console: Console | None
    log: Path
    _live: Live | None = None
    _printed: dict[int, str] = field(default_factory=dict)
    _printed_rejections: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        if self.console is not None and self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def line(self, text: str) -> None:
        """Write a line to the log, and print it where there is no live table."""
        now = dt.datetime.now(dt.UTC)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{now:%Y-%m-%d %H:%M:%S} {text}\n")
        if self.console is not None and self._live is None:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, watch: Watch, reader: CheckedReader, left: float) -> None:
        """Print what has changed; `left` is for how many seconds the partner goes on."""
        for journey in watch.journeys:
            text = described(journey)
            if text and self._printed.get(journey.sending.number) != text:
                self._printed[journey.sending.number] = text
                self.line(text)
        for name, reason in watch.rejected.items():
            if self._printed_rejections.get(name) != reason:
                self.line(f"rejected arrival {name}: {reason}")
        self._printed_rejections = dict(watch.rejected)
        if self._live is not None:
            self._live.update(Group(table_of(watch), Text(_footer(watch, reader, left))), refresh=True)


def described(journey: Journey) -> str:
    """Return a journey that has come to its end as one line; "" for one that has not."""
    sending = journey.sending
    title = f"{sending.number:>3} {sending.slot} {sending.kind}"
    if journey.note:
        return f"{title}: {journey.note}"
    if journey.seen_at is None:
        return ""
    stages = zip(STAGES, journey.moments, strict=True)
    stage_texts = [f"{name} {journey.after(moment):.1f}" for name, moment in stages if moment is not None]
    return f"{title}: {', '.join(stage_texts)} s after it was sent"


def table_of(watch: Watch) -> Table:
    """Return a table of the newest files, with when each reached each stage, in seconds after it was sent."""
    table = Table("", "sent", "hour and shop", "file", *STAGES, "", title="seconds after a file was sent")
    for journey in watch.journeys[-_ROWS:]:
        sending = journey.sending
        seconds = [journey.after(moment) for moment in journey.moments]
        table.add_row(
            str(sending.number), f"{dt.datetime.fromtimestamp(sending.sent_at, dt.UTC):%H:%M:%S}", str(sending.slot),
            str(sending.kind), *["" if elapsed is None else f"{elapsed:.1f}" for elapsed in seconds], journey.note,
        )  # fmt: skip
    return table


def medians(watch: Watch) -> dict[str, float]:
    """Return, by stage, the median of the seconds after a file was sent, over files that had a run of their own."""
    seconds_by_stage = {}
    for index, name in enumerate(STAGES):
        seconds = [
            after for journey in watch.journeys
            if journey.run_at is not None and (after := journey.after(journey.moments[index])) is not None
        ]  # fmt: skip
        if seconds:
            seconds_by_stage[name] = round(statistics.median(seconds), 2)
    return seconds_by_stage


def _footer(watch: Watch, reader: CheckedReader, left: float) -> str:
    partner_text = f"The partner sends for {left:.0f} s more." if left > 0 else "The partner has sent everything."
    reader_text = f"{len(reader.wrong)} wrong" if reader.wrong else "every answer right"
    lines = [
        f"{time.strftime('%H:%M:%S', time.gmtime())} UTC. {partner_text}",
        f"The reader asked {reader.reads:,} times (slowest {reader.slowest * 1000:.0f} ms): {reader_text}.",
        *[f"Rejected: {name}: {reason}" for name, reason in watch.rejected.items()],
        *[f"Failed: {failure}" for failure in watch.failed[-3:]],
    ]
    return "\n".join(lines)
