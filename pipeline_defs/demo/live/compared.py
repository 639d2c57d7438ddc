"""How the live demo ends: a clean rebuild takes the same files, and both are compared with what the partner sent."""

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
    """All rows that a place shows: of the view, and of the lake's current batches."""

    revenue: tuple[tuple[object, ...], ...]
    orders: Counter[tuple[object, ...]]


def contents(place: LivePlace, settings: Settings) -> Contents:
    """What readers of a place are shown, read as anybody would: by SQL, and as plain parquet."""
    with place.here(settings) as own, connect(own, application="varve demo") as connection:
        revenue = tuple(connection.execute(_VIEW).fetchall())
        batches = Catalog(connection).current(ORDERS)
    orders: Counter[tuple[object, ...]] = Counter()
    for path, batch in batches.items():
        hour, shop = (part.split("=", 1)[1] for part in path.split("/"))
        for row in pq.ParquetDataset(batch.location, partitioning=None).read().to_pylist():
            orders[hour, shop, row["order_id"], row["product"], row["cents"]] += 1
    return Contents(revenue, orders)


def rebuild(place: LivePlace, settings: Settings) -> int:
    """Take all that lies in the landing folder into an empty catalog; how many runs that were. Raises VarveError."""
    from pipeline_defs.demo.live.project.definitions import defs, graph

    with place.here(settings) as own, open_instance(own) as instance:
        return Driver(instance, defs, graph).until_quiet()


def differences(lived: Contents, rebuilt: Contents, partner: Partner) -> list[str]:
    """Every difference in words; empty where what was lived through is what a rebuild has and what was sent."""
    found = []
    for name, one in (("the clean rebuild", rebuilt), ("what was lived through", lived)):
        sent: Counter[tuple[object, ...]] = Counter(partner.orders())
        found += [f"{name} has not {order}, which was sent" for order in list(sent - one.orders)[:5]]
        found += [f"{name} has {order}, which was not sent" for order in list(one.orders - sent)[:5]]
        summed: Counter[tuple[object, object]] = Counter()
        for hour, shop, _, orders, _ in one.revenue:
            summed[hour, shop] += int(str(orders))
        expected = {(slot.hour, slot.shop): totals.orders for slot, totals in partner.expected().items()}
        if summed != expected:
            found.append(f"{name} counts {dict(summed)} orders in the view; sent were {expected}")
    found += [f"only lived through: {row}" for row in sorted(set(lived.revenue) - set(rebuilt.revenue), key=str)[:5]]
    found += [f"only in the rebuild: {row}" for row in sorted(set(rebuilt.revenue) - set(lived.revenue), key=str)[:5]]
    return found
