"""Many calls of a file system at once: bounded, in order, and with every error."""

from __future__ import annotations

import threading

import pytest

from varve.stores.folders.file_calls import AT_ONCE, at_once


def test_the_answers_have_the_order_of_the_items() -> None:
    assert at_once(lambda number: number * number, range(100)) == [number * number for number in range(100)]
    assert at_once(str, []) == []


def test_as_many_calls_wait_at_a_time_as_are_allowed_and_no_more() -> None:
    running, most, lock = 0, 0, threading.Lock()
    full = threading.Event()

    def call(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == AT_ONCE:
                full.set()
        assert full.wait(60), "the first calls wait until there are as many as may be"
        with lock:
            running -= 1

    at_once(call, range(3 * AT_ONCE))
    assert most == AT_ONCE


def test_the_first_error_is_raised_and_names_the_others() -> None:
    both = threading.Barrier(2)

    def call(name: str) -> None:
        if name.startswith("bad"):
            both.wait(60)
            raise OSError(f"{name} is not there")

    with pytest.raises(OSError, match=r"^bad 1 is not there") as raised:
        at_once(call, ["good", "bad 1", "good", "bad 2"])
    assert raised.value.__notes__ == ["Also failed: bad 2 is not there."]


def test_after_an_error_nothing_is_begun_any_more() -> None:
    begun: list[int] = []

    def call(number: int) -> None:
        begun.append(number)
        raise OSError(f"{number}")

    with pytest.raises(OSError, match=r"^0"):
        at_once(call, range(10_000))
    assert len(begun) <= AT_ONCE
