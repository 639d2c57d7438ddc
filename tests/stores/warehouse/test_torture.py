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
    found = measure(ours, Target(url, ours.relation, PERIODS, ROWS), seconds=SECONDS, long_seconds=2, publishers=2)
    assert found.wrong == []
    assert found.errors == []
    assert found.published >= 4
    assert {reads.kind: bool(reads.seconds) for reads in found.reads} == dict.fromkeys(KINDS, True)
    # On an idle machine 150 ms; here others work too. Without a lock_timeout it would be the long reader's 2 s.
    assert found.milliseconds(1) < 1_500
    left = connection.execute(
        "select count(*) from varve.batch where dataset = %s and state = 'failed'", (ours.relation,)
    )
    assert left.fetchone() == (0,)


def test_the_readers_notice_what_the_obvious_order_does_to_them(settings: Settings) -> None:
    url = warehouse_url(settings)
    naive = DropCreateLoad(url, ROWS, "drop, create, load", one_transaction=False)
    naive.prepare()
    found = measure(naive, Target(url, naive.relation, PERIODS, ROWS), seconds=2, long_seconds=0.5, publishers=1)
    assert found.wrong or found.errors
