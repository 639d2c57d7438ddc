"""The comparison of the live demo: the partner notes what was sent, and the reader's answers are checked."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pipeline_defs.demo.live.compared import Contents, differences
from pipeline_defs.demo.live.partner import MISDATED, Partner, SendingKind, Slot, Totals
from pipeline_defs.demo.live.reader import CheckedReader

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline_defs.demo.live.partner import Sending

SLOT = Slot("2026-11-22T05", "Lagos")
FIRST, SECOND = Totals(3, 100), Totals(5, 250)


@pytest.fixture
def partner(tmp_path: Path) -> Partner:
    """A partner that has sent every kind of file."""
    new_partner = Partner(tmp_path / "orders", every=0.0, finish=time.time() + 3600)
    for _ in range(15):
        new_partner.send_next()
    return new_partner


def file_of(partner: Partner, sending: Sending) -> Path:
    return partner.folder / f"{sending.slot.hour}|{sending.slot.shop}.csv"


def test_the_partner_sends_every_kind_and_writes_down_what_can_be_seen(partner: Partner) -> None:
    assert {sending.kind for sending in partner.sendings} == set(SendingKind)
    newest = {sending.slot: sending for sending in partner.sendings}
    assert {file.name for file in partner.folder.iterdir()} == {
        file_of(partner, sending).name for sending in newest.values()
    }
    for slot, sending in newest.items():
        content = file_of(partner, sending).read_bytes()
        assert hashlib.blake2b(content, digest_size=16).hexdigest() == sending.fingerprint
        header, *lines = content.decode().splitlines()
        assert header == "order_id,product,cents"
        cents = [int(line.split(",")[2]) for line in lines]
        if slot.hour == MISDATED:
            assert slot not in partner.versions()
        else:
            assert partner.expected()[slot] == Totals(len(lines), sum(cents))
            assert {(slot.hour, slot.shop, int(line.split(",")[0])) for line in lines} == {
                order[:3] for order in partner.orders() if order[:2] == (slot.hour, slot.shop)
            }


def test_a_broken_file_is_cut_off_and_no_version_until_it_is_mended(tmp_path: Path) -> None:
    partner = Partner(tmp_path, every=0.0, finish=time.time() + 3600)
    broken = [partner.send_next() for _ in range(3)][-1]
    assert broken.kind is SendingKind.BROKEN
    assert not file_of(partner, broken).read_bytes().endswith(b"\n")
    assert broken.slot not in partner.versions()
    while (sending := partner.send_next()).kind is not SendingKind.MENDED:
        pass
    assert sending.slot == broken.slot
    assert len(partner.versions()[broken.slot]) == 1


def test_what_is_sent_twice_is_the_same_bytes_and_the_same_version(partner: Partner) -> None:
    again = next(sending for sending in partner.sendings if sending.kind is SendingKind.AGAIN)
    before = [sending for sending in partner.sendings[: again.number - 1] if sending.slot == again.slot][-1]
    assert (again.fingerprint, again.version) == (before.fingerprint, before.version)


def test_a_partner_whose_time_is_short_mends_what_he_broke(tmp_path: Path) -> None:
    partner = Partner(tmp_path, every=0.0, finish=time.time() + 3600)
    broken = [partner.send_next() for _ in range(3)][-1]
    partner.finish = time.time()
    partner.until_finish(threading.Event())
    assert [sending.kind for sending in partner.sendings[3:]] == [SendingKind.MENDED]
    assert partner.sendings[-1].slot == broken.slot


@pytest.fixture
def reader(partner: Partner) -> CheckedReader:
    return CheckedReader("", partner)


def test_answers_that_were_sent_in_their_order_are_right(reader: CheckedReader) -> None:
    reader.check({}, {}, 1.0)
    reader.check({SLOT: FIRST}, {SLOT: (FIRST,)}, 2.0)
    reader.check({SLOT: FIRST}, {SLOT: (FIRST, SECOND)}, 3.0)
    reader.check({SLOT: SECOND}, {SLOT: (FIRST, SECOND)}, 4.0)
    assert reader.wrong == []
    assert reader.seen_at == {(SLOT, 0): 2.0, (SLOT, 1): 4.0}
    assert reader.shows({SLOT: SECOND}, {SLOT: (FIRST, SECOND)})
    assert not reader.shows({SLOT: FIRST}, {SLOT: (FIRST, SECOND)})


@pytest.mark.parametrize(
    ("answer", "expected_message"),
    [
        ({SLOT: Totals(4, 100)}, "was never sent"),
        ({SLOT: FIRST}, "version 0 after version 1"),
        ({}, "is missing from an answer"),
        ({SLOT: SECOND, Slot(MISDATED, "Berlin"): Totals(1, 100)}, "was never sent"),
    ],
    ids=["mixed", "back", "missing", "misdated"],
)
def test_an_answer_that_nobody_may_get_is_wrong(
    reader: CheckedReader, answer: dict[Slot, Totals], expected_message: str
) -> None:
    sent = {SLOT: (FIRST, SECOND)}
    reader.check({SLOT: SECOND}, sent, 1.0)
    reader.check(answer, sent, 2.0)
    assert expected_message in reader.wrong[0]


def contents_of(partner: Partner) -> Contents:
    revenue: Counter[tuple[str, str, str]] = Counter()
    cents: Counter[tuple[str, str, str]] = Counter()
    for hour, shop, _, product, price in partner.orders():
        revenue[hour, shop, product] += 1
        cents[hour, shop, product] += price
    return Contents(
        tuple((*key, count, cents[key]) for key, count in sorted(revenue.items())), Counter(partner.orders())
    )


def test_every_difference_in_the_end_is_found(partner: Partner) -> None:
    right = contents_of(partner)
    assert differences(right, right, partner) == []
    missing = Contents(right.revenue, right.orders - Counter([next(iter(right.orders))]))
    assert "which was sent" in differences(missing, right, partner)[0]
    twice = Contents(right.revenue, right.orders + Counter([next(iter(right.orders))]))
    assert "which was not sent" in differences(twice, right, partner)[0]
    (hour, shop, product, orders, cents), *rest = right.revenue
    other = Contents(((hour, shop, product, orders, int(str(cents)) + 1), *rest), right.orders)
    assert any("only in the rebuild" in difference for difference in differences(other, right, partner))
    fewer = Contents(tuple(rest), right.orders)
    assert any("orders in the view" in difference for difference in differences(right, fewer, partner))
