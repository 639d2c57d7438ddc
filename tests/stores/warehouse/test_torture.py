"""Eight readers while two publishers replace periods: no wrong answer and no error (see `benchmarks.publish`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.protocols import PERIODS, DropCreateLoad, Ours
from benchmarks.publish import measure
from benchmarks.readers import KINDS, Target
from varve.services.postgres import warehouse_url

if TYPE_CHECKING:
    import psycopg

    from varve.services.settings import Settings

ROWS = 200
SECONDS = 6.0


def test_no_reader_of_any_kind_sees_anything_wrong_while_periods_are_republished(
    settings: Settings, connection: psycopg.Connection
) -> None:
    url = warehouse_url(settings)
    ours = Ours(url, ROWS)
    ours.prepare()
    result = measure(ours, Target(url, ours.relation, PERIODS, ROWS), seconds=SECONDS, long_seconds=2, publishers=2)
    assert result.wrong == []
    assert result.errors == []
    assert result.published >= 4
    assert {reads.kind: bool(reads.seconds) for reads in result.reads} == dict.fromkeys(KINDS, True)
    # On an idle machine 150 ms; here others work too. Without a lock_timeout it would be the long reader's 2 s.
    assert result.milliseconds(1) < 1_500
    left = connection.execute(
        "select count(*) from varve.batch where dataset = %s and state = 'failed'", (ours.relation,)
    )
    assert left.fetchone() == (0,)


def test_the_readers_notice_what_dropping_tables_before_the_view_does_to_them(settings: Settings) -> None:
    url = warehouse_url(settings)
    tables_first = DropCreateLoad(url, ROWS, "tables first", one_transaction=False)
    tables_first.prepare()
    result = measure(
        tables_first, Target(url, tables_first.relation, PERIODS, ROWS), seconds=2, long_seconds=0.5, publishers=1
    )
    assert result.wrong or result.errors
