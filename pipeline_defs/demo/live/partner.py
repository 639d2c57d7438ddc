"""The partner of the live demo: shops that send the file of an hour again and again, some late, some twice, some wrong.

What readers should see after each file is noted here before the file is written. Nothing here uses Varve, so that the
check is independent of it.
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
    """The kinds of files that the partner puts into the landing folder."""

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
        """The partition path, as the catalog spells it."""
        return f"hour={self.hour}/shop={self.shop}"

    def __str__(self) -> str:
        return f"{self.hour} {self.shop}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What a reader sees of a slot: the number of orders, and their sum in cents."""

    orders: int
    cents: int


@dataclass(frozen=True, slots=True)
class Sending:
    """One file that was put into the landing folder.

    Attributes:
        number: counts the files from 1.
        sent_at: when the file got its name, in epoch seconds.
        fingerprint: the hash of the file's bytes, as the catalog records it.
        version: the index of its content in the versions of its slot; None where readers must never see it.
    """

    number: int
    kind: SendingKind
    slot: Slot
    sent_at: float
    fingerprint: str
    version: int | None


@dataclass
class Partner:
    """Puts files into a folder. Its methods may be called from other threads.

    Attributes:
        folder: the landing folder of the dataset `varve_live.orders`.
        every: seconds between two files.
        finish: when everything has been sent, the mended version of the broken file too, in epoch seconds.
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
        """Send one more file; its kind follows from the number of files before and from chance."""
        number, now = len(self.sendings) + 1, dt.datetime.now(dt.UTC)
        current = f"{now:%Y-%m-%dT%H}"
        if number == 3:
            self._broken = Slot(_hour_before(now, 2), SHOPS[2])
            return self._put(
                SendingKind.BROKEN, self._broken, _text(self._with_more_rows(self._broken)) + "17,tea", None
            )
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
        """Send files until `finish`, or until `stop` is set."""
        while not stop.is_set():
            self.send_next()
            if time.time() + self.every >= self.finish and (self._mended or self._broken is None):
                return
            stop.wait(self.every)

    def versions(self) -> dict[Slot, tuple[Totals, ...]]:
        """Return all versions that readers may have seen until now, by slot in the order in which they were sent."""
        with self._lock:
            return {slot: tuple(versions) for slot, versions in self._versions.items()}

    def expected(self) -> dict[Slot, Totals]:
        """Return what readers see once everything that was sent is taken."""
        return {slot: versions[-1] for slot, versions in self.versions().items()}

    def orders(self) -> set[tuple[str, str, int, str, int]]:
        """Return every order that was sent, as hour, shop, id, product and cents."""
        return {
            (slot.hour, slot.shop, *row) for slot, rows in self._rows.items() if slot in self._versions for row in rows
        }

    def _new_version(self, kind: SendingKind, slot: Slot) -> Sending:
        rows = self._with_more_rows(slot)
        with self._lock:
            # The version is noted before the file is written: a reader may see it at once.
            versions = self._versions.setdefault(slot, [])
            versions.append(Totals(len(rows), sum(cents for _, _, cents in rows)))
            version = len(versions) - 1
        return self._put(kind, slot, _text(rows), version)

    def _with_more_rows(self, slot: Slot) -> list[tuple[int, str, int]]:
        rows = self._rows.setdefault(slot, [])
        for _ in range(self.chance.randint(3, 9)):
            rows.append((len(rows) + 1, self.chance.choice(_PRODUCTS), self.chance.randint(50, 5_000)))
        return rows

    def _put(self, kind: SendingKind, slot: Slot, text: str, version: int | None) -> Sending:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, content = f"{slot.hour}|{slot.shop}.csv", text.encode()
        hidden_file = self.folder / f".{name}"
        hidden_file.write_bytes(content)
        sending = Sending(
            len(self.sendings) + 1,
            kind,
            slot,
            time.time(),
            hashlib.blake2b(content, digest_size=16).hexdigest(),
            version,
        )
        hidden_file.replace(self.folder / name)
        self.sendings.append(sending)
        return sending


def _hour_before(now: dt.datetime, hours: int) -> str:
    return f"{now - dt.timedelta(hours=hours):%Y-%m-%dT%H}"


def _text(rows: list[tuple[int, str, int]]) -> str:
    return _HEADER + "".join(f"{number},{product},{cents}\n" for number, product, cents in rows)
