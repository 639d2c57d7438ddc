"""The reader of the live demo: queries the view again and again, and checks each answer against what was sent."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import psycopg

from pipeline_defs.demo.live.partner import Slot, Totals
from varve.services.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline_defs.demo.live.partner import Partner

_QUERY = """
    select hour, shop, sum(orders)::bigint, sum(cents)::bigint from varve_live.revenue group by hour, shop
"""
_PAUSE_SECONDS = 0.05


@dataclass
class CheckedReader:
    """A dashboard of other people on one connection, whose answers are checked.

    Each answer must show every slot in one of the versions that the partner had sent by then, and never in an older
    version than an answer before. No slot that an answer had may be missing in a later one.

    Attributes:
        reads: how many answers there were.
        wrong: what was wrong with answers, as texts; empty where all were right.
        slowest: how long the slowest answer took, in seconds.
        seen_at: when a version of a slot, or a later one, was first seen, in epoch seconds.
    """

    url: str
    partner: Partner
    reads: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0
    seen_at: dict[tuple[Slot, int], float] = field(default_factory=dict)
    _latest: dict[Slot, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def shows(self, expected: Mapping[Slot, Totals], versions: Mapping[Slot, tuple[Totals, ...]]) -> bool:
        """Return whether the newest answer was exactly `expected`."""
        latest = dict(self._latest)
        return {slot: versions[slot][version] for slot, version in latest.items()} == dict(expected)

    def check(self, answer: Mapping[Slot, Totals], versions: Mapping[Slot, tuple[Totals, ...]], seen_at: float) -> None:
        """Compare an answer, of the instant `at` in epoch seconds, with what had been sent by then."""
        for slot in self._latest.keys() - answer.keys():
            self.wrong.append(f"{slot} was there and is missing from an answer")
        for slot, totals in answer.items():
            sent_versions, latest_version = versions.get(slot, ()), self._latest.get(slot, -1)
            if totals not in sent_versions:
                self.wrong.append(f"{slot}: {totals} was never sent; sent were {list(sent_versions)}")
                continue
            version = sent_versions.index(totals)
            if version < latest_version:
                self.wrong.append(f"{slot}: version {version} after version {latest_version}")
            for newer in range(latest_version + 1, version + 1):
                self.seen_at[slot, newer] = seen_at
            self._latest[slot] = version

    def _read(self) -> None:
        try:
            with open_session(self.url, application="dashboard") as connection:
                while not self._stop.is_set():
                    self._query_view(connection)
                    self._stop.wait(_PAUSE_SECONDS)
        except psycopg.Error as error:
            self.wrong.append(f"the reader was refused: {error}")

    def _query_view(self, connection: psycopg.Connection) -> None:
        start = time.monotonic()
        try:
            rows = connection.execute(_QUERY).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            # The first publish creates the view.
            if self._latest:
                raise
            return
        self.slowest = max(self.slowest, time.monotonic() - start)
        answered_at = time.time()
        self.reads += 1
        answer = {Slot(hour, shop): Totals(orders, cents) for hour, shop, orders, cents in rows}
        self.check(answer, self.partner.versions(), answered_at)
