"""Slots that are made while others write: whom they wait for, and what PostgreSQL forgets meanwhile.

Not here: what a snapshot holds (test_capture.py).
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.cdc.waits import until
from varve.cdc.capture import new_slot, source_database
from varve.cdc.capture.new_slot import slot_with_snapshot
from varve.cdc.capture.open_transactions import WaitLimits
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import NeedsResnapshot
from varve.cdc.captures import opened
from varve.cdc.health import capture_findings
from varve.model.errors import ServiceUnavailable, VarveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg.pq.abc import PGresult

    from tests.cdc.lab import Lab
    from varve.cdc.captured_table import CapturedTable

pytestmark = pytest.mark.timeout(300)


def inserted(lab: Lab, generation: int = 1) -> list[dict[str, str | None]]:
    import pyarrow.parquet as pq

    rows = [row for batch in lab.log().batches(generation) for row in pq.read_table(batch.data).to_pylist()]
    return [
        dict(zip(row["columnNames"], row["columnValues"], strict=True)) for row in rows if row["changeType"] == "insert"
    ]


@contextmanager
def session(lab: Lab, *statements: str, application: str = "shop") -> Iterator[psycopg.Connection]:
    """A session of the application with an open transaction."""
    with psycopg.connect(lab.url, application_name=application) as connection:
        for statement in statements:
            connection.execute(statement.format(t=lab.table))
        yield connection


def left_behind(lab: Lab) -> tuple[int, int]:
    """How many slots and publications of ours the source has."""
    with lab.source() as source:
        row = source.execute(
            "select (select count(*) from pg_replication_slots where slot_name = %(name)s or slot_name like "
            "'varve_begins%%'), (select count(*) from pg_publication where pubname = %(name)s)",
            {"name": lab.captured.slot},
        ).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.parametrize("is_slot_lost", [False, True])
def test_a_dataset_whose_slot_would_be_that_of_another_one_is_refused_and_the_other_goes_on(
    lab: Lab, *, is_slot_lost: bool
) -> None:
    def named(name: str) -> CapturedTable:
        return replace(lab.captured, dataset=replace(lab.captured.dataset, name=name))

    db = lab.captured.dataset.db
    first, second = named(f"{db}_a.b"), named(f"{db}.a_b")
    assert first.slot == second.slot
    lab.captured = first
    lab.bootstrap()
    if is_slot_lost:
        lab.sql(f"select pg_drop_replication_slot('{first.slot}')")
    lab.captured = second
    with pytest.raises(VarveError, match=rf"\.a_b: .* be {first.slot}, which is that of {first.dataset}: .*other name"):
        lab.bootstrap()
    with lab.catalog() as catalog:
        assert Positions(catalog.connection).find(second.dataset.name) is None
    lab.captured = first
    if not is_slot_lost:
        lab.sql("insert into {t} (w, id) values (1, 1)")
        assert lab.capture() is not None
        lab.captured = second
        with lab.catalog() as catalog:
            Positions(catalog.connection).forget(first.dataset.name)
        # Of another catalog there is no position.
        with pytest.raises(VarveError, match="that is not ours: another deployment captures the same table"):
            lab.bootstrap()


def test_long_names_that_begin_alike_have_one_slot_and_are_refused(lab: Lab) -> None:
    name = f"{lab.captured.dataset.db}.{'orders_of_the_shop_' * 3}"
    for rest in ("2025", "2026"):
        lab.captured = replace(lab.captured, dataset=replace(lab.captured.dataset, name=name + rest))
        if rest == "2025":
            lab.bootstrap()
    with pytest.raises(VarveError, match=r"2026: .*is that of .*2025: a slot has the first 56 characters"):
        lab.bootstrap()


def test_a_snapshot_that_open_transactions_keep_waiting_says_whose_they_are_and_gives_up(lab: Lab) -> None:
    messages: list[str] = []
    with session(lab, "insert into {t} (w, id) values (1, 1)", application="night job") as open_:
        pid = open_.info.backend_pid
        with pytest.raises(ServiceUnavailable) as raised:
            lab.bootstrap(seconds=3, say=messages.append)
        for text in (str(raised.value), *messages):
            assert f"pid {pid} (user postgres, application night job, database" in text
            assert "its transaction open since" in text
            assert "idle in transaction: insert into" in text
        assert "VARVE_BOOTSTRAP_SECONDS" in str(raised.value)
        assert len(messages) == 1
        assert left_behind(lab) == (0, 0)
        with lab.catalog() as catalog:
            row = catalog.connection.execute(
                "select from varve.cdc_position where dataset = %s", (lab.captured.dataset.name,)
            ).fetchone()
        assert row is None
        with pytest.raises(VarveError, match="not captured yet"):
            lab.capture()
        with lab.source() as source:
            busy = "select count(*) from pg_stat_activity where application_name = 'varve cdc'"
            until(lambda: source.execute(busy).fetchone() == (0,))
    lab.bootstrap()
    assert [row["id"] for row in inserted(lab)] == ["1"]


def test_a_new_snapshot_that_gives_up_leaves_the_earlier_capture_as_it_was(lab: Lab) -> None:
    lab.bootstrap()
    with session(lab, "insert into {t} (w, id) values (1, 1)"):
        with pytest.raises(ServiceUnavailable, match="transactions of the source that are open"):
            lab.bootstrap(resnapshot=True, seconds=0.5)
        assert left_behind(lab) == (1, 1)
        assert lab.capture() is None
    assert lab.capture() is not None


def test_a_lock_on_the_table_is_waited_for_no_longer_than_a_transaction(lab: Lab) -> None:
    messages: list[str] = []
    with session(lab, "lock table {t} in share update exclusive mode") as open_:
        with pytest.raises(ServiceUnavailable, match=f"a lock on public.*pid {open_.info.backend_pid} "):
            lab.bootstrap(seconds=1.5, say=messages.append)
        assert messages
    assert left_behind(lab) == (0, 0)
    lab.bootstrap()


def test_a_transaction_that_ends_in_time_is_waited_for(lab: Lab) -> None:
    messages: list[str] = []
    with session(lab, "insert into {t} (w, id) values (1, 1)") as open_:

        def say(text: str) -> None:
            messages.append(text)
            open_.commit()

        lab.bootstrap(say=say)
    assert len(messages) == 1
    assert "the source makes us wait, 60 s at most, for pid" in messages[0]
    assert len(inserted(lab)) == 1


def test_a_slot_is_tried_again_where_too_much_was_rolled_back_while_it_was_made(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[bool] = []
    had_too_many = new_slot._had_too_many_transactions

    def noted(result: PGresult) -> bool:
        refused.append(had_too_many(result))
        return refused[-1]

    monkeypatch.setattr(new_slot, "_had_too_many_transactions", noted)
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(session(lab)) for _ in range(3))
        watching, other = (stack.enter_context(lab.source()) for _ in range(2))
        first.execute("select pg_current_xact_id()")
        turns: list[Callable[[], object]] = []

        def turn(_: str) -> None:
            if turns:
                turns.pop(0)()

        def end_the_first() -> None:
            second.execute("select pg_current_xact_id()")
            first.commit()

        def roll_back() -> None:
            # The oldest that is open when the slot is there; what ended after it began is noted one by one.
            third.execute("select pg_current_xact_id()")
            for _number in range(1_000):
                with suppress(psycopg.Rollback), other.transaction():
                    other.execute("select pg_current_xact_id()")
                    raise psycopg.Rollback
            other.execute(f"insert into {lab.table} (w, id) values (1, 1)")
            second.commit()

        turns += [end_the_first, roll_back, third.commit]
        patience = WaitLimits(lab.captured, watching, 60, turn)
        with slot_with_snapshot(SourceDatabase(lab.url), lab.captured.slot, patience) as (_, snapshot):
            assert snapshot
        other.execute("select pg_drop_replication_slot(%s)", (lab.captured.slot,))
    assert refused == [True, False]


LIMITS = {
    "lock_timeout": "100ms",
    "statement_timeout": "1s",
    "idle_in_transaction_session_timeout": "100ms",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
}


def test_limits_that_the_source_has_for_its_users_do_not_end_a_snapshot(lab: Lab) -> None:
    with lab.source() as source, session(lab, "insert into {t} (w, id) values (1, 1)") as open_:
        (database,) = source.execute("select current_database()").fetchone() or ("",)
        for name, limit in LIMITS.items():
            source.execute(f"alter database {database} set {name} = '{limit}'")
        try:
            lab.bootstrap(say=lambda _: open_.commit(), step=lambda _: time.sleep(0.2))
            source.execute(f"insert into {lab.table} (w, id) values (1, 2)")
            assert lab.capture() is not None
        finally:
            source.execute(f"alter database {database} reset all")
    assert len(inserted(lab)) == 2


def test_a_bootstrap_that_fails_at_any_place_leaves_nothing_at_the_source(lab: Lab) -> None:
    for place in ("start", "publish", "slot", "snapshot", "begin"):

        def step(name: str, place: str = place) -> None:
            if name == place:
                raise OSError(28, "no space left")

        with pytest.raises(OSError, match="no space left"):
            lab.bootstrap(step=step)
        assert left_behind(lab) == (0, 0)
        with pytest.raises(VarveError, match="not captured yet"):
            lab.capture()
    lab.bootstrap()
    assert left_behind(lab) == (1, 1)


def bootstrapped_beside(lab: Lab, change: str, then: str) -> None:
    """Take a snapshot while others change the catalog, in the order in which PostgreSQL forgets what they did."""
    beside(lab, lambda step: lab.bootstrap(step=step), change, then)


def beside(lab: Lab, making: Callable[[Callable[[str], None]], object], change: str, then: str) -> None:
    """Make a slot while others change the catalog.

    The slot waits for the first transaction; the change begins then, and is committed before the slot is complete; what
    follows writes before that too, and commits after it.
    """
    failed: list[BaseException] = []
    published = threading.Event()
    with ExitStack() as stack:
        first = stack.enter_context(session(lab))

        def step(name: str) -> None:
            if name == "publish":
                first.execute("select pg_current_xact_id()")
                published.set()

        def make() -> None:
            try:
                making(step)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)

        maker = threading.Thread(target=make, daemon=True)
        maker.start()
        published.wait(60)
        until(waits_for(lab, first))
        changing = stack.enter_context(session(lab, change))
        second = stack.enter_context(session(lab, "select pg_current_xact_id()"))
        first.commit()
        until(waits_for(lab, changing, second))
        changing.commit()
        writing = stack.enter_context(session(lab, then))
        second.commit()
        # The slot is complete; the snapshot does not wait for what was begun since.
        maker.join(60)
        assert not maker.is_alive()
        writing.commit()
    assert failed == []


def waits_for(lab: Lab, *others: psycopg.Connection) -> Callable[[], bool]:
    """Whether a session that makes a slot waits for one of those."""

    def found() -> bool:
        with lab.source() as source:
            row = source.execute(
                "select bool_or(%s::int[] && pg_blocking_pids(pid)) from pg_stat_activity where query like "
                "'CREATE_REPLICATION_SLOT%%'",
                ([other.info.backend_pid for other in others],),
            ).fetchone()
        return row == (True,)

    return found


def test_a_table_that_was_truncated_while_its_slot_was_made_can_be_decoded(lab: Lab) -> None:
    # Otherwise: could not map filenumber "base/5/16404" to relation OID, however often PostgreSQL is asked.
    lab.sql("insert into {t} (w, id) values (1, 1)")
    bootstrapped_beside(lab, "truncate {t}", "insert into {t} (w, id) values (1, 2)")
    assert lab.capture() is not None
    assert [row["id"] for row in inserted(lab)] == ["2"]


def test_another_table_that_was_truncated_while_the_slot_was_made_does_not_stop_it(lab: Lab) -> None:
    lab.sql("create table {t}_other (a int)")
    bootstrapped_beside(lab, "truncate {t}_other", "insert into {t}_other values (1)")
    lab.sql("insert into {t} (w, id) values (1, 2)")
    assert lab.capture() is not None


def test_a_column_that_was_added_while_its_slot_was_made_is_in_the_stream(lab: Lab) -> None:
    # Otherwise PostgreSQL leaves it out, without a word.
    bootstrapped_beside(
        lab, "alter table {t} add extra text", "insert into {t} (w, id, extra) values (1, 1, 'is there')"
    )
    assert lab.capture() is not None
    assert [row["extra"] for row in inserted(lab)] == ["is there"]


def test_a_log_that_the_source_can_never_decode_stops_the_capture_and_names_the_remedy(lab: Lab) -> None:
    lab.bootstrap()
    lab.sql("insert into {t} (w, id) values (1, 1)")
    assert lab.capture() is not None
    slot = lab.captured.slot
    lab.sql(f"select pg_drop_replication_slot('{slot}')")

    def make(step: Callable[[str], None]) -> None:
        """As slots were made before a forerunner was."""
        step("publish")
        connection = SourceDatabase(lab.url).connect_for_slot()
        made = connection.exec_(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput NOEXPORT_SNAPSHOT'.encode())
        assert made.error_message == b""
        connection.finish()

    # A table that is not captured, beside it in the database.
    lab.sql("create table {t}_other (a int)")
    beside(lab, make, "truncate {t}_other", "insert into {t}_other values (1)")
    with closing(SourceDatabase(lab.url).connect()) as source:
        end = source_database.end_of_log(source)
    with lab.catalog() as catalog:
        catalog.connection.execute(
            "update varve.cdc_position set told_lsn = %s where dataset = %s", (end, lab.captured.dataset.name)
        )
    lab.sql("insert into {t} (w, id) values (1, 2)")
    asked: list[str] = []
    for _ in range(2):
        with pytest.raises(NeedsResnapshot, match=r"(?s)could not map filenumber.*XX000.*varve cdc resnapshot"):
            lab.capture(asked.append)
    # Asked again three times, and then no more.
    assert asked == ["peek"] * 3
    with opened(lab.captured, lab.settings, lock=False) as capture:
        assert capture.position.state == "stopped"
        assert "could not map filenumber" in (capture.position.reason or "")
    with lab.catalog() as catalog:
        (finding,) = capture_findings(catalog.connection, lab.captured.dataset.name)
    assert "has stopped" in finding.problem
    assert finding.remedy.endswith(f"Take a new snapshot: varve cdc resnapshot {lab.captured.dataset}")
    lab.bootstrap(resnapshot=True)
    lab.sql("insert into {t} (w, id) values (1, 3)")
    assert lab.capture() is not None
    assert [row["id"] for row in inserted(lab, 2)] == ["1", "2", "3"]
    with lab.catalog() as catalog:
        assert list(capture_findings(catalog.connection, lab.captured.dataset.name)) == []
