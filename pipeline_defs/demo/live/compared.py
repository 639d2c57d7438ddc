"""The comparison at the end of the live demo: its result, a clean rebuild of the same files, and what was sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pipeline_defs.demo.live.watching import ORDERS
from varve.catalog.catalog import Catalog
from varve.dagster.driver import Driver
from varve.dagster.instance import open_instance
from varve.services.postgres import connect

if TYPE_CHECKING:
    from pipeline_defs.demo.live.partner import Partner
    from pipeline_defs.demo.live.place import LivePlace
    from varve.services.settings import Settings

_VIEW = "select hour, shop, product, orders, cents from varve_live.revenue order by 1, 2, 3"


@dataclass(frozen=True)
class Contents:
    """All rows that readers of a place see.

    Attributes:
        revenue: the rows of the view.
        orders: the rows of the lake's current batches, with how often each occurs.
    """

    revenue: tuple[tuple[object, ...], ...]
    orders: Counter[tuple[object, ...]]


def contents(place: LivePlace, settings: Settings) -> Contents:
    """Return what readers of a place see, read as other people would read it: by SQL, and as plain parquet."""
    with place.here(settings) as place_settings, connect(place_settings, application="varve demo") as connection:
        revenue = tuple(connection.execute(_VIEW).fetchall())
        batches = Catalog(connection).current(ORDERS)
    orders: Counter[tuple[object, ...]] = Counter()
    for path, batch in batches.items():
        hour, shop = (part.split("=", 1)[1] for part in path.split("/"))
        for row in pq.ParquetDataset(batch.location, partitioning=None).read().to_pylist():
            orders[hour, shop, row["order_id"], row["product"], row["cents"]] += 1
    return Contents(revenue, orders)


def rebuild(place: LivePlace, settings: Settings) -> int:
    """Take all files of the landing folder into an empty catalog, and return how many runs that took.

    Raises VarveError where a run fails.
    """
    from pipeline_defs.demo.live.project.definitions import defs, graph

    with place.here(settings) as place_settings, open_instance(place_settings) as instance:
        return Driver(instance, defs, graph).until_quiet()


def differences(lived: Contents, rebuilt: Contents, partner: Partner) -> list[str]:
    """Return every difference as text; empty where the live result, the rebuild and what was sent are the same."""
    messages = []
    for name, compared in (("the clean rebuild", rebuilt), ("what was lived through", lived)):
        sent: Counter[tuple[object, ...]] = Counter(partner.orders())
        messages += [f"{name} has not {order}, which was sent" for order in list(sent - compared.orders)[:5]]
        messages += [f"{name} has {order}, which was not sent" for order in list(compared.orders - sent)[:5]]
        orders_by_slot: Counter[tuple[object, object]] = Counter()
        for hour, shop, _, orders, _ in compared.revenue:
            orders_by_slot[hour, shop] += int(str(orders))
        expected = {(slot.hour, slot.shop): totals.orders for slot, totals in partner.expected().items()}
        if orders_by_slot != expected:
            messages.append(f"{name} counts {dict(orders_by_slot)} orders in the view; sent were {expected}")
    messages += [f"only lived through: {row}" for row in sorted(set(lived.revenue) - set(rebuilt.revenue), key=str)[:5]]
    messages += [
        f"only in the rebuild: {row}" for row in sorted(set(rebuilt.revenue) - set(lived.revenue), key=str)[:5]
    ]
    return messages
