"""Calendars of one's own from files to readers: trading days and terms around today, under the sensors and commands."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest

from tests.cli.test_environments import DAYS, Store, shop_at_rest  # noqa: F401 - a fixture
from varve.model.errors import UnknownPartition
from varve.model.partitions.own_calendar import Calendar

pytestmark = pytest.mark.spark

PRICES = """CREATE DATASET {db}.sales (product STRING NOT NULL, cents BIGINT NOT NULL)
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(CALENDAR 'trading', START '{start}')
  INSERT (day = CAST(t AS DATE))
EXTERNAL OPTIONS (source = 'landing', files = 'sales_{{day:%Y-%m-%d}}.csv');
"""
TERMS = """CREATE DATASET {db}.totals
  STORED IN WAREHOUSE
  PARTITIONED BY (term DATE)
  FOR t IN TIMESERIES(CALENDAR 'terms', START '{start}')
  LET first_day = CAST(t AS DATE), next_term = CAST(t_end AS DATE)
  INSERT (term = first_day)
AS SELECT COUNT(*) AS days, SUM(sales.cents) AS cents FROM {db}.sales
WHERE sales.day >= first_day AND sales.day < next_term;
"""


def in_days(number: int) -> dt.date:
    """The day that is so many days after today."""
    return DAYS[-1] + dt.timedelta(days=1 + number)


def trading() -> list[dt.date]:
    """All days of last week but the third, and those of the month to come."""
    return [*DAYS[:2], *DAYS[3:], *map(in_days, range(30))]


def write(shop: Store, name: str, calendar: Calendar) -> None:
    (shop.root / f"{shop.db}_assets" / f"{name}.calendar").write_text(calendar.text, encoding="utf-8")
    shop.reload()


def terms(*bounds: dt.date) -> Calendar:
    return Calendar.of("terms", pairwise(bounds))


@pytest.fixture
def market(shop_at_rest: Store) -> Store:  # noqa: F811
    assets = shop_at_rest.root / f"{shop_at_rest.db}_assets"
    for name in ("revenue", "trailing"):
        (assets / f"{name}.sql").unlink()
    write(shop_at_rest, "trading", Calendar.of_days("trading", trading()))
    write(shop_at_rest, "terms", terms(DAYS[0], DAYS[3], in_days(0), in_days(60)))
    for name, text in (("sales", PRICES), ("totals", TERMS)):
        (assets / f"{name}.sql").write_text(text.format(db=shop_at_rest.db, start=DAYS[0]))
    shop_at_rest.reload()
    return shop_at_rest


def totals(shop: Store) -> dict[dt.date, tuple[int, int]]:
    return {term: (days, cents) for term, days, cents in shop.rows("select term, days, cents::bigint from shop.totals")}


def test_trading_days_become_terms_and_the_calendar_may_grow_and_must_not_move(market: Store) -> None:
    shop = market
    for place, day in enumerate(DAYS):
        if day != DAYS[2]:
            shop.send(day, ("pen", 10**place))
    shop.run_due()
    # The term of today is open; a day that belongs to nobody is waited for by nobody.
    assert totals(shop) == {DAYS[0]: (2, 11), DAYS[3]: (3, 111_000)}
    assert shop.run_due() == []
    with pytest.raises(UnknownPartition, match=f"no window holds it: the nearest start at {DAYS[1]} and {DAYS[3]}"):
        shop.varve("why", "shop.sales", f"day={DAYS[2]}")
    tasks = shop.varve("tasks", "shop.sales")
    assert f"day={DAYS[2]}" not in tasks
    assert all(f"day={day}" in tasks for day in DAYS if day != DAYS[2])

    # More windows after the last one change nothing of what is there.
    write(shop, "trading", Calendar.of_days("trading", [*trading(), in_days(40)]))
    assert shop.run_due() == []
    assert "generation" not in shop.varve("plan")

    # A window in the gap is a partition more, and its term is computed with it.
    write(shop, "trading", Calendar.of_days("trading", sorted([*trading(), DAYS[2]])))
    shop.send(DAYS[2], ("pen", 100))
    assert shop.run_due()
    assert totals(shop) == {DAYS[0]: (3, 111), DAYS[3]: (3, 111_000)}

    # A window that ends elsewhere is another one under the same key: and readers keep the old one.
    write(shop, "terms", terms(DAYS[0], DAYS[2], in_days(0), in_days(60)))
    # It is not requested again and again in vain: the sensors hold it, and say why.
    assert shop.run_due() == []
    assert "on hold" in shop.varve("why", "shop.totals", f"term={DAYS[0]}")
    assert f"{shop.db}.totals: declared here as another generation" in (plan := " ".join(shop.varve("plan").split()))
    assert "The windows of calendar terms that begin in" in plan
    assert totals(shop) == {DAYS[0]: (3, 111), DAYS[3]: (3, 111_000)}
    shown = " ".join(shop.varve("evolve", "shop.totals", "--dry-run").split())
    assert "The windows of calendar terms that begin in" in shown
    shop.varve("evolve", "shop.totals")
    assert totals(shop) == {DAYS[0]: (2, 11), DAYS[2]: (4, 111_100)}


def test_a_window_that_is_taken_out_is_retired_and_its_readers_run_again(market: Store) -> None:
    shop = market
    for day in [*DAYS[:2], *DAYS[3:]]:
        shop.send(day, ("pen", 1))
    shop.run_due()
    write(shop, "trading", Calendar.of_days("trading", [day for day in trading() if day != DAYS[1]]))
    assert shop.run_due() == [f"totals {DAYS[0]}"]
    assert totals(shop) == {DAYS[0]: (1, 1), DAYS[3]: (3, 3)}
    retired = " ".join(shop.varve("retire", "--dry-run").split())
    assert f"{shop.db}.sales │ day={DAYS[1]} │ the graph has no such partition any more" in retired
    assert shop.run_due() == []
