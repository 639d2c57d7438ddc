"""Cases that were executed on Airflow 3.3.2 and Dagster 1.13.27, asked of our own mapping.

`recommended` wins over `expected`: there a peer is wrong. A case that describes its sides only in words has a builder
that says the same in our words; the answer is always computed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
import pytest

from tests.planning.known import CatalogReader
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import UnknownPartition, VarveError
from varve.model.partitions.calendar import calendar_of
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.key import PartitionKey
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Overlap, Reads, TableReads, Unit, Wait, shifted, trailing
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph, edge
from varve.planning.judgement.facts import Fact
from varve.planning.judgement.wait_policy import verdict
from varve.planning.mapping.dataset_mapping import Dependency, listed
from varve.planning.mapping.partition_subset import PartitionBox, TimeSpans, choice_of
from varve.planning.mapping.ranges import partitions_between
from varve.planning.reconcile import reconcile
from varve.planning.schedule_ticks import completed

if TYPE_CHECKING:
    from collections.abc import Callable

Case = dict[str, Any]
CASES: dict[str, Case] = {
    case["id"]: case for case in json.loads((Path(__file__).parent / "data" / "mapping_cases.json").read_text())
}
NEW_YORK = "America/New_York"
STORES = StaticDimension("store", ("Paris", "Detroit"))
REGIONS = StaticDimension("region", ("apac", "eu", "us"))

# Where the file's answer is a refusal of something that we support, or a sentence: what ours is.
OURS: dict[str, object] = {
    # Dagster refuses an unnamed dynamic dimension in a product; ours has no unnamed one, and refuses its empty name.
    "M049": "refused: dimension user: a set is named in lower-case letters, digits, _ and ., not ''.",
    # A sentence: "25 distinct upstream keys".
    "M064": 25,
    # Airflow refuses a fan-out inside a product; ours is exact: the region's 24 hours.
    "M085": [f"us|2026-03-10T{hour:02}" for hour in range(24)],
    # Airflow refuses in the middle of a month for the sake of its mapper; ours names the month that holds the day.
    "M094": "refused: '2024-01-31' begins no window of dimension month (month); "
    "the window that holds it starts at 2024-01-01.",
    # The AIP forbids it, Dagster accepts it, and so do we.
    "M103": ["2024-06-10|a", "2024-06-10|b"],
}


def time(described: Case, name: str) -> TimeDimension:
    """The time dimension that a case describes; its first window is the first that begins at or after its start."""
    zone = described.get("tz", "UTC")
    start = int(pendulum.parse(described.get("start", "2010-01-01T00:00+0000")).timestamp())  # type: ignore[union-attr]
    first = calendar_of(described["cron"], zone).following(start - 1)
    end = described.get("end")
    return TimeDimension(
        name,
        described["cron"],
        pendulum.from_timestamp(first, tz=zone),
        pendulum.parse(end).in_timezone(zone) if end else None,  # type: ignore[union-attr]
        described.get("fmt", "%Y-%m-%d"),
        described.get("end_offset", 0),
    )


def grained(grain: Grain, key_format: str | None = None, zone: str = "UTC") -> TimeDimension:
    return TimeDimension(str(grain), grain, pendulum.datetime(2001, 1, 1, tz=zone), key_format=key_format)


def between(reader: TimeDimension, upstream: TimeDimension, rule: Overlap | None = None) -> Dependency:
    dependency = Dependency(Partitioning((reader,)), Partitioning((upstream,)), {upstream.name: rule} if rule else {})
    dependency.check()
    return dependency


def texts(keys: list[PartitionKey]) -> list[str]:
    return ["|".join(map(str, key.values)) for key in keys]


def moment(case: Case) -> pendulum.DateTime:
    parsed = pendulum.parse(case["keys"][0])
    assert isinstance(parsed, pendulum.DateTime)
    return parsed


def quarter(case: Case) -> PartitionKey:
    year, _, number = case["keys"][0].partition("-Q")
    return PartitionKey.of(quarter=grained(Grain.QUARTER).holding(pendulum.datetime(int(year), 3 * int(number), 1)))


def executed(case: Case) -> dict[str, list[str]]:
    """Two time dimensions and offsets, as most cases are."""
    up, down = time(case["upstream"], "up"), time(case["downstream"], "down")
    match = re.fullmatch(r"TimeWindowPartitionMapping\(start_offset=(-?\d+), end_offset=(-?\d+), .*\)", case["mapping"])
    assert match
    dependency = between(down, up, Overlap(int(match[1]), int(match[2])))
    now = pendulum.parse(case["now"])
    assert isinstance(now, pendulum.DateTime)
    sides = {"upstream_of": (down, dependency.upstream_of), "downstream_of": (up, dependency.readers_of)}
    dimension, ask = sides[case["direction"]]
    mapped = [
        ask(PartitionKey.of(**{dimension.name: dimension.value_at(dimension.start_of(key))}), now=now)
        for key in case["keys"]
    ]
    keys = dict.fromkeys(text for part in mapped for text in texts(part.keys))
    missing = dict.fromkeys(text for part in mapped for text in texts(listed(part.nonexistent)))
    return {"keys": list(keys), "nonexistent": list(missing)}


def day_of_all_stores(case: Case) -> dict[str, list[str]]:
    day = grained(Grain.DAY)
    upstream = Partitioning((day, STORES))
    mapped = Dependency(Partitioning((day,)), upstream).upstream_of(PartitionKey.of(day=day.parse("2022-03-31")))
    return {"keys": sorted(map(upstream.to_dagster, mapped.keys))}


def dynamic_without_a_name(case: Case) -> str:
    Partitioning((grained(Grain.DAY), DynamicDimension("user", "users"))).check()
    return refused(Partitioning((grained(Grain.DAY), DynamicDimension("user", ""))).check)


def week_of_one_store(case: Case) -> dict[str, list[str]]:
    week = TimeDimension.of("day", "@weekly", "2022-01-02")
    reader, upstream = Partitioning((week, STORES)), Partitioning((grained(Grain.DAY), STORES))
    mapped = Dependency(reader, upstream).upstream_of(PartitionKey.of(day=week.parse("2022-03-20"), store="Paris"))
    return {"keys": list(map(upstream.to_dagster, mapped.keys))}


def hours_of_a_day(case: Case, zone: str, key_format: str) -> list[str]:
    day = grained(Grain.DAY, zone=zone)
    hours = between(day, grained(Grain.HOUR, key_format, zone))
    return texts(hours.upstream_of(PartitionKey.of(day=day.parse(case["keys"][0]))).keys)


def readers_in(case: Case, upstream: TimeDimension, reader: TimeDimension) -> list[str]:
    """What reads the window that holds a moment."""
    at = pendulum.parse(case["keys"][0], tz=upstream.timezone)
    assert isinstance(at, pendulum.DateTime)
    readers = between(reader, upstream).readers_of(PartitionKey.of(**{upstream.name: upstream.holding(at)}))
    return texts(readers.keys)


def region_and_minute(case: Case, reader: TimeDimension, upstream: TimeDimension) -> list[str]:
    region, at = case["keys"][0].split("|")
    key = PartitionKey.of(region=region, **{upstream.name: upstream.holding(pendulum.parse(at))})
    readers = Dependency(Partitioning((REGIONS, reader)), Partitioning((REGIONS, upstream))).readers_of(key)
    return texts(readers.keys)


def segment(case: Case) -> list[str]:
    everywhere = Partitioning((StaticDimension("segment", ("all_regions",)),))
    table = TableReads("segment", {"all_regions": REGIONS.members})
    dependency = Dependency(everywhere, Partitioning((REGIONS,)), {"region": table})
    dependency.check()
    return texts(dependency.upstream_of(PartitionKey.of(segment=case["keys"][0])).keys)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(VarveError) as error:
        call()
    return f"refused: {error.value}"


def middle_of_a_month(case: Case) -> str:
    month = grained(Grain.MONTH)
    with pytest.raises(UnknownPartition):
        month.parse(case["keys"][0])
    return refused(lambda: between(month, grained(Grain.DAY)).upstream_of(PartitionKey.of(month=case["keys"][0])))


def days_from_to(case: Case) -> list[str]:
    # A backfill names its first and its last day, both included; only `end` of a dimension is exclusive.
    day = Partitioning((grained(Grain.DAY),))
    first, last = (day.from_dagster(text) for text in ("2024-01-01", "2024-01-03"))
    return [f"{key}T00:00:00" for key in texts(partitions_between(day, first, last))]


def hourly_ticks_over_days(case: Case) -> dict[str, object]:
    runs: list[list[str]] = []
    first, last = pendulum.datetime(2024, 6, 10, 1), pendulum.datetime(2024, 6, 11)
    ticks = list(pendulum.interval(first, last).range("hours"))
    for tick in ticks:
        keys = completed(grained(Grain.DAY), tick.subtract(hours=1), tick)
        runs += [[tick.format("YYYY-MM-DD[T]HH:mm[Z]"), str(key)] for key in keys]
    return {"runs": runs, "skipped": len(ticks) - len(runs)}


def dynamic_in_a_product(case: Case) -> list[str]:
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    product = Partitioning((grained(Grain.DAY), DynamicDimension("key", "keys")))
    reader = Dataset("t.reader", Partitioning((grained(Grain.DAY),)), schema, StoreKind.LAKE, "One row per sale.")
    upstream = Dataset("t.upstream", product, schema, StoreKind.LAKE, "One row per sale.")
    key = PartitionKey.of(day=grained(Grain.DAY).parse("2024-06-10"))
    mapped = edge(reader, Reads(upstream)).dependency.upstream_of(key, members={"keys": ("a", "b")})
    return list(map(product.to_dagster, mapped.keys))


def run_by_hand_before(case: Case) -> str:
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    days = Partitioning((grained(Grain.DAY),))
    up, down = (Dataset(f"t.{name}", days, schema, StoreKind.LAKE, "One row per sale.") for name in ("up", "down"))
    graph = Graph({up.name: up, down.name: down}, {down.name: (Reads(up),)}, {})
    path = "day=2024-06-10"
    made = {
        up.name: {path: Fact(batch=7, published=1.0)},
        down.name: {path: Fact(batch=8, published=2.0, trace=((up.name, path, "7"),))},
    }
    plan = reconcile(graph, CatalogReader(made), now=pendulum.datetime(2024, 6, 12))
    return "run" if any(run.dataset is down for run in plan.runs) else "skipped"


def two_days_of_two_stores(case: Case) -> list[list[str]]:
    day = grained(Grain.DAY)
    dependency = Dependency(Partitioning((day,)), Partitioning((day, STORES)), {"day": trailing(2)})
    keys = dependency.upstream_of(PartitionKey.of(day=day.parse("2022-03-31"))).keys
    # The file lists the newest day first, and stores by name.
    newest = sorted({key["day"] for key in keys}, reverse=True)
    return [
        [str(at), str(store)] for at in newest for store in sorted(key["store"] for key in keys if key["day"] == at)
    ]


def merged_ranges(case: Case) -> list[str]:
    day = time(case["upstream"], "day")
    days = Partitioning((day,))
    first, last = case["downstream"]["offset"]
    ends = [tuple(map(day.start_of, text.split(".."))) for text in case["keys"]]
    box = PartitionBox(days, (TimeSpans.of((start, day.calendar.following(end)) for start, end in ends),))
    (merged,) = between(day, day, Overlap(first, last)).readers_of(box).existing
    (spans,) = merged.choices
    assert isinstance(spans, TimeSpans)
    return [f"{day.text_at(start)}..{day.text_at(day.calendar.floor(end - 1))}" for start, end in spans.spans]


def lagging(case: Case, key_format: str) -> list[str]:
    dimension = time({**case["upstream"], "fmt": key_format}, "time")
    first, last = case["downstream"]["offset"]
    assert first == last
    box = [PartitionBox(Partitioning((dimension,)), (choice_of(dimension, [key]),)) for key in case["keys"]]
    dependency = between(dimension, dimension, shifted(first))
    return [text for partition in box for text in texts(dependency.upstream_of(partition).keys)]


MINUTE = TimeDimension.of("minute", "* * * * *", "2020-01-01")
BUILDERS: dict[str, Callable[[Case], object]] = {
    "M046": day_of_all_stores,
    "M049": dynamic_without_a_name,
    "M052": week_of_one_store,
    "M055": lambda case: grained(Grain.HOUR).holding(moment(case)),
    "M058": lambda case: grained(Grain.MONTH, "%Y-%m").holding(moment(case)),
    "M061": lambda case: str(grained(Grain.DAY, zone=NEW_YORK).holding(moment(case))),
    "M064": lambda case: len(set(hours_of_a_day(case, NEW_YORK, "%Y-%m-%dT%H"))),
    "M067": lambda case: hours_of_a_day(case, "Asia/Taipei", "%Y-%m-%dT%H%z"),
    "M070": lambda case: texts(
        between(grained(Grain.QUARTER), grained(Grain.MONTH, "%Y-%m")).upstream_of(quarter(case)).keys
    ),
    "M073": lambda case: readers_in(case, grained(Grain.WEEK), grained(Grain.DAY)),
    "M076": lambda case: readers_in(
        case, grained(Grain.DAY, zone=NEW_YORK), grained(Grain.HOUR, "%Y-%m-%dT%H", NEW_YORK)
    ),
    # Airflow's window of three months goes back from the quarter's first month.
    "M079": lambda case: texts(
        between(grained(Grain.QUARTER), grained(Grain.MONTH, "%Y-%m"), shifted(-2, Unit.UPSTREAM))
        .upstream_of(quarter(case))
        .keys
    ),
    "M082": lambda case: ", ".join(region_and_minute(case, grained(Grain.DAY), MINUTE)),
    "M085": lambda case: region_and_minute(case, grained(Grain.HOUR), grained(Grain.DAY)),
    "M088": segment,
    "M091": lambda _: verdict(Wait(missing=1), wanted=3, present=2).ready,
    "M094": middle_of_a_month,
    "M097": days_from_to,
    "M100": hourly_ticks_over_days,
    "M103": dynamic_in_a_product,
    "M106": run_by_hand_before,
    "M109": two_days_of_two_stores,
    "M112": merged_ranges,
    "M115": lambda case: lagging(case, "%Y-%m-%d_%H"),
    "M118": lambda case: {"keys": lagging(case, "%Y-%m-%d")},
}


def wanted(case: Case) -> object:
    if case["id"] in OURS:
        return OURS[case["id"]]
    expected = case.get("recommended", case["expected"])
    return (
        {name: value for name, value in expected.items() if name != "why"} if isinstance(expected, dict) else expected
    )


@pytest.mark.parametrize("case", CASES.values(), ids=[f"{case['id']} {case['name']}" for case in CASES.values()])
def test_a_case_of_the_seed_has_the_answer_that_is_recommended(case: Case) -> None:
    assert BUILDERS.get(case["id"], executed)(case) == wanted(case)
