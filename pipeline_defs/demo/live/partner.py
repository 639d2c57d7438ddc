"""The partner of the live demo: shops that send the file of an hour again and again, some late, some twice, some wrong.

What each file should make readers see is written down before the file is there; nothing here asks Varve anything.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import random
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - of a dataclass

SHOPS = ("Berlin", "Lagos", "Osaka")
_PRODUCTS = ("bread", "cheese", "olives", "rice", "tea")
_HEADER = "order_id,product,cents\n"
MISDATED = "2099-01-01T00"


class SendingKind(StrEnum):
    """What a partner does to the landing folder."""

    NEW = "new"
    MORE = "grew"
    LATE = "late"
    AGAIN = "sent twice"
    BROKEN = "broken"
    MENDED = "mended"
    MISDATED = "misdated"


@dataclass(frozen=True, slots=True)
class Slot:
    """One partition: an hour in UTC, as `2026-11-22T05`, and a shop."""

    hour: str
    shop: str

    @property
    def path(self) -> str:
        """As the catalog spells it."""
        return f"hour={self.hour}/shop={self.shop}"

    def __str__(self) -> str:
        return f"{self.hour} {self.shop}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What a reader sees of a slot."""

    orders: int
    cents: int


@dataclass(frozen=True, slots=True)
class Sending:
    """One file that was put into the landing folder.

    Attributes:
        sent_at: when it had its name, in epoch seconds.
        fingerprint: of its bytes, as the catalog records it.
        version: the place of what it holds in the history of its slot; None where nobody may ever see it.
    """

    number: int
    kind: SendingKind
    slot: Slot
    sent_at: float
    fingerprint: str
    version: int | None


@dataclass
class Partner:
    """Puts files into a folder. Safe to ask from other threads.

    Attributes:
        folder: the landing folder of the dataset `varve_live.orders`.
        every: seconds between two files.
        finish: epoch seconds at which he has sent everything, the broken file in its mended form too.
    """

    folder: Path
    every: float
    finish: float
    chance: random.Random = field(default_factory=lambda: random.Random(16))  # noqa: S311 - sample data
    sendings: list[Sending] = field(default_factory=list)
    _rows: dict[Slot, list[tuple[int, str, int]]] = field(default_factory=dict)
    _versions: dict[Slot, list[Totals]] = field(default_factory=dict)
    _broken: Slot | None = None
    _mended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send_next(self) -> Sending:
        """Send one more file; which of the kinds follows from how many there were and from chance."""
        number, now = len(self.sendings) + 1, dt.datetime.now(dt.UTC)
        current = f"{now:%Y-%m-%dT%H}"
        if number == 3:
            self._broken = Slot(_hour_before(now, 2), SHOPS[2])
            return self._put(SendingKind.BROKEN, self._broken, _text(self._grown(self._broken)) + "17,tea", None)
        if number == 5:
            return self._put(SendingKind.MISDATED, Slot(MISDATED, SHOPS[0]), f"{_HEADER}1,tea,100\n", None)
        if self._broken and not self._mended and (number >= 9 or time.time() + 2 * self.every >= self.finish):
            self._mended = True
            return self._new_version(SendingKind.MENDED, self._broken)
        shop = SHOPS[number % len(SHOPS)]
        if number % 6 == 0:
            return self._new_version(SendingKind.LATE, Slot(_hour_before(now, 1), shop))
        slot = Slot(current, shop)
        if number % 4 == 0 and slot in self._versions:
            return self._put(SendingKind.AGAIN, slot, _text(self._rows[slot]), len(self._versions[slot]) - 1)
        return self._new_version(SendingKind.MORE if slot in self._versions else SendingKind.NEW, slot)

    def until_finish(self, stop: threading.Event) -> None:
        """Send files until the time is over, or `stop` is set."""
        while not stop.is_set():
            self.send_next()
            if time.time() + self.every >= self.finish and (self._mended or self._broken is None):
                return
            stop.wait(self.every)

    def versions(self) -> dict[Slot, tuple[Totals, ...]]:
        """All that readers may ever have seen until now, each slot's in the order in which it was sent."""
        with self._lock:
            return {slot: tuple(versions) for slot, versions in self._versions.items()}

    def expected(self) -> dict[Slot, Totals]:
        """What readers see when everything that was sent is taken."""
        return {slot: versions[-1] for slot, versions in self.versions().items()}

    def orders(self) -> set[tuple[str, str, int, str, int]]:
        """Every order that was sent: hour, shop, id, product, cents."""
        return {
            (slot.hour, slot.shop, *row) for slot, rows in self._rows.items() if slot in self._versions for row in rows
        }

    def _new_version(self, kind: SendingKind, slot: Slot) -> Sending:
        rows = self._grown(slot)
        with self._lock:
            # Before the file is there: whoever reads it is not told that nobody had sent it.
            versions = self._versions.setdefault(slot, [])
            versions.append(Totals(len(rows), sum(cents for _, _, cents in rows)))
            version = len(versions) - 1
        return self._put(kind, slot, _text(rows), version)

    def _grown(self, slot: Slot) -> list[tuple[int, str, int]]:
        rows = self._rows.setdefault(slot, [])
        for _ in range(self.chance.randint(3, 9)):
            rows.append((len(rows) + 1, self.chance.choice(_PRODUCTS), self.chance.randint(50, 5_000)))
        return rows

    def _put(self, kind: SendingKind, slot: Slot, text: str, version: int | None) -> Sending:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, content = f"{slot.hour}|{slot.shop}.csv", text.encode()
        beside = self.folder / f".{name}"
        beside.write_bytes(content)
        sending = Sending(
            len(self.sendings) + 1,
            kind,
            slot,
            time.time(),
            hashlib.blake2b(content, digest_size=16).hexdigest(),
            version,
        )
        beside.replace(self.folder / name)
        self.sendings.append(sending)
        return sending


def _hour_before(now: dt.datetime, hours: int) -> str:
    return f"{now - dt.timedelta(hours=hours):%Y-%m-%dT%H}"


def _text(rows: list[tuple[int, str, int]]) -> str:
    return _HEADER + "".join(f"{number},{product},{cents}\n" for number, product, cents in rows)
