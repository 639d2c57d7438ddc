"""Which landing files are looked at: each exactly when it is settled, in order, and none is ever passed over."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_defs.planning.arrivals import Cursor, LandingFile, settled

SETTLE = 5.0


def file(key: str, changed_at: float) -> LandingFile:
    return LandingFile(changed_at, key, f"/landing/{key}.csv", 10)


def keys(files: list[LandingFile], cursor: Cursor, *, now: float = 1_000.0) -> list[str]:
    return [found.key for found in settled(files, cursor, now=now, settle_seconds=SETTLE)]


def test_files_come_in_the_order_of_their_change_then_of_their_name() -> None:
    assert keys([file("b", 20), file("c", 10), file("a", 20)], Cursor()) == ["c", "a", "b"]


def test_files_up_to_the_cursor_are_not_looked_at_again() -> None:
    files = [file("a", 10), file("b", 20), file("c", 20), file("d", 30)]
    assert keys(files, Cursor(20, "b")) == ["c", "d"]


def test_a_file_that_is_sent_again_comes_again() -> None:
    assert keys([file("a", 40)], Cursor(30, "d")) == ["a"]


def test_a_file_that_changed_just_now_waits_and_so_does_what_changed_after_it() -> None:
    files = [file("old", 900), file("being written", 996), file("newer", 998)]
    assert keys(files, Cursor()) == ["old"]
    assert keys(files, Cursor(900, "old"), now=1_001.5) == ["being written"]
    assert keys(files, Cursor(996, "being written"), now=1_003.5) == ["newer"]


def test_a_file_that_settles_in_this_instant_waits_for_the_next_look() -> None:
    assert keys([file("a", 995)], Cursor()) == []


def test_an_empty_folder_has_nothing_to_look_at() -> None:
    assert keys([], Cursor()) == []


# A partner writes one of four files, or a second or more passes and the sensor looks, up to so many files at a time.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abcd")),
        st.tuples(st.just("pass"), st.integers(1, 7)),
        st.tuples(st.just("look"), st.integers(0, 4)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(steps, st.sampled_from([0.0, 1.0, 5.0]))
def test_no_content_is_ever_passed_over_however_files_are_written_and_looks_cut_short(
    events: list[tuple[str, str | int]], settle_seconds: float
) -> None:
    now, cursor = 100.0, Cursor()
    folder: dict[str, LandingFile] = {}
    written: dict[str, int] = {}
    seen: dict[str, int] = {}

    def look(budget: int) -> None:
        nonlocal cursor
        for found in settled(folder.values(), cursor, now=now, settle_seconds=settle_seconds)[:budget]:
            assert found.changed_at < now - settle_seconds
            assert Cursor(found.changed_at, found.key) > cursor
            seen[found.key] = written[found.key]
            cursor = Cursor(found.changed_at, found.key)

    for what, detail in events:
        if what == "write":
            folder[str(detail)] = file(str(detail), now)
            written[str(detail)] = written.get(str(detail), 0) + 1
        elif what == "pass":
            now += int(detail)
        else:
            look(int(detail))
    now += settle_seconds + 1
    look(len(folder))
    assert seen == written
