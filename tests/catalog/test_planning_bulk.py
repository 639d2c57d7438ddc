"""What PostgreSQL tells in bulk is what looking at each partition tells, over random catalogs."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import pendulum
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.sales import COLUMNS
from varve.catalog.catalog import Catalog
from varve.catalog.planning.facts import CatalogFacts
from varve.model.dataset import Dataset, StoreKind
from varve.model.partitions.dimension import Dimension, StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.policy import Policy
from varve.model.reads import All, Reads, Wait, trailing
from varve.planning.graph import Graph
from varve.planning.judgement.facts import DatasetInputs, WantedInputs
from varve.planning.judgement.judgement import State
from varve.planning.judgement.judging import RetryLimits
from varve.planning.judgement.settled import OneByOne
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.reconcile import Limits, Planner, RunPlan, overview, reconcile
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    from collections.abc import Iterator

START = pendulum.datetime(2024, 1, 1)
NOW = pendulum.datetime(2024, 1, 20)
DAY = TimeDimension("day", "@daily", START, START.add(days=14))
WEEK = TimeDimension("week", "0 0 * * 1", START, START.add(days=14))
STORE = StaticDimension("store", ("a b", "ü/%", 'q"\\'))


def dataset(name: str, *dimensions: Dimension, landing: bool = False, policy: Policy | None = None) -> Dataset:
    return Dataset(
        f"b.{name}", Partitioning(dimensions), COLUMNS, StoreKind.LAKE, "One row.",
        landing=landing, policy=policy or Policy(),
    )  # fmt: skip


LANDED = dataset("landed", DAY, landing=True)
# Its name sorts after "landing:", and the next one's before.
ZONED = dataset("zoned", DAY, STORE, policy=Policy(retention=dt.timedelta(days=14)))
SAME = dataset("as_it_was", DAY, landing=True)
TRAILING = dataset("trailing", DAY, policy=Policy(refresh_last=1))
WEEKLY = dataset("weekly", WEEK)
WHOLE = dataset("whole", STORE)
GRAPH = Graph(
    {each.name: each for each in (LANDED, ZONED, SAME, TRAILING, WEEKLY, WHOLE)},
    {
        SAME.name: (Reads(LANDED),),
        ZONED.name: (Reads(LANDED), Reads(SAME)),
        TRAILING.name: (Reads(LANDED, {"day": trailing(3)}), Reads(SAME)),
        WEEKLY.name: (Reads(TRAILING, wait=Wait(at_least=3)), Reads(SAME)),
        WHOLE.name: (Reads(ZONED, {"day": All()}), Reads(WEEKLY, {"week": All()})),
    },
    {},
)
LIMITS = Limits(RetryLimits(attempts=2, first=0.0))
DISTURBED = ["batch", "equal", "gone", "trace", "longer", "mark", "hold", "failure", "arrival", "stranger", "run"]
EVENTS = st.lists(
    st.tuples(st.sampled_from(sorted(GRAPH.datasets)), st.integers(0, 41), st.sampled_from(DISTURBED)), max_size=8
)


@pytest.fixture
def opened(fresh_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        yield connection


def fill(connection: psycopg.Connection) -> None:
    """All partitions there are, made from what is current."""
    connection.execute(
        "truncate varve.batch, varve.current, varve.arrival, varve.hold, varve.dirty, varve.backfill, varve.change"
        " cascade"
    )
    for place, dataset in enumerate(GRAPH.in_order()):
        connection.execute(
            "insert into varve.dataset values (%s, 'lake', '{}') on conflict do nothing", (dataset.name,)
        )
        for key in dataset.partitioning.keys(None, NOW):
            trace = []
            if dataset.landing:
                trace.append([landing_source(dataset), key.path, "a"])
                arrive(connection, dataset.name, key.path, "a")
            for edge in GRAPH.edges[dataset.name]:
                mapped = edge.dependency.upstream_of(key, now=NOW)
                trace += [[edge.upstream.name, up.path, str(batch_of(edge.upstream))] for up in listed(mapped.existing)]
            publish(connection, dataset.name, key.path, 1_000 + place, trace)


def batch_of(dataset: Dataset) -> int:
    return 1_000 + GRAPH.in_order().index(dataset)


def arrive(connection: psycopg.Connection, name: str, path: str, fingerprint: str) -> None:
    connection.execute(
        "insert into varve.arrival (dataset, partition, uri, bytes, fingerprint) values (%s, %s, '/file', 1, %s)"
        " on conflict (dataset, partition) do update set fingerprint = excluded.fingerprint",
        (name, path, fingerprint),
    )


def publish(
    connection: psycopg.Connection, name: str, path: str, batch: int, trace: list[list[str]], *, content: str = "x"
) -> None:
    connection.execute(
        "insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, inputs, content,"
        " published_at) values (%s, %s, %s, 'published', 'r', '1', %s::jsonb, %s, to_timestamp(1))",
        (name, path, batch, json.dumps(sorted(trace)), content),
    )
    connection.execute(
        "insert into varve.current (dataset, partition, batch_id) values (%s, %s, %s)"
        " on conflict (dataset, partition) do update set batch_id = excluded.batch_id",
        (name, path, batch),
    )


def disturb(connection: psycopg.Connection, name: str, place: int, what: str, number: int) -> dict[str, dict[str, str]]:
    """Let something happen to a partition; what is in flight by it."""
    keys = [*GRAPH.datasets[name].partitioning.keys(None, NOW)]
    path, batch = keys[place % len(keys)].path, 5_000 + number
    given = (name, path)
    row = connection.execute(
        "select b.inputs from varve.current c join varve.batch b using (dataset, partition, batch_id)"
        " where c.dataset = %s and c.partition = %s", given,
    ).fetchone()  # fmt: skip
    trace = row[0] if row else []
    if what in {"batch", "equal"}:
        publish(connection, *given, batch, trace, content="x" if what == "equal" else "y")
    elif what == "gone":
        connection.execute("delete from varve.current where dataset = %s and partition = %s", given)
    elif what == "trace":
        publish(connection, *given, batch, trace[1:])
    elif what == "longer":
        publish(connection, *given, batch, [*trace, ["b.landed", "day=2023-12-31", "7"]])
    elif what == "mark":
        backfill = connection.execute(
            "insert into varve.backfill (reason, owner, marked) values ('r', 'o', '{}') returning id"
        ).fetchone()
        assert backfill is not None
        connection.execute("insert into varve.dirty values (%s, %s, %s, %s)", (*given, backfill[0], batch))
    elif what == "hold":
        connection.execute("insert into varve.hold values (%s, %s, now()) on conflict do nothing", given)
    elif what == "failure":
        connection.execute(
            "insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, failed_at)"
            " values (%s, %s, %s, 'failed', 'r', '1', now())", (*given, batch),
        )  # fmt: skip
    elif what == "arrival":
        arrive(connection, *given, "b")
    elif what == "stranger":
        publish(connection, name, "day=1999-01-01", batch, [])
    else:
        return {name: {path: "running"}}
    return {}


def histories(count: int) -> settings:
    """So many random ones."""
    unminded = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, suppress_health_check=unminded)


@histories(20)
@given(EVENTS)
@example([])
@example([("b.landed", 3, "batch"), ("b.trailing", 3, "trace"), ("b.zoned", 4, "longer"), ("b.as_it_was", 5, "run")])
def test_the_answer_in_bulk_leads_to_the_judgements_of_looking_at_each(
    opened: psycopg.Connection, events: list[tuple[str, int, str]]
) -> None:
    """20 random histories; `make torture` has 200."""
    compare_in_bulk(opened, events)


@pytest.mark.slow
@histories(200)
@given(EVENTS)
def test_so_it_does_after_hundreds_of_histories(opened: psycopg.Connection, events: list[tuple[str, int, str]]) -> None:
    compare_in_bulk(opened, events)


def states(plan: RunPlan) -> dict[str, dict[str, State]]:
    return {
        name: {path: judgement.state for path, judgement in judgements.items()}
        for name, judgements in plan.judgements.items()
    }


def compare_in_bulk(opened: psycopg.Connection, events: list[tuple[str, int, str]]) -> None:
    """Plan in bulk and by looking at each partition, and compare the judgements, the runs and each answer."""
    fill(opened)
    in_flight: dict[str, dict[str, str]] = {}
    for number, (name, place, what) in enumerate(events):
        in_flight |= disturb(opened, name, place, what, number)
    facts = CatalogFacts(opened, in_flight)
    plan = Planner(GRAPH, LIMITS).tick(facts, None, now=NOW)
    one_by_one = reconcile(GRAPH, facts, now=NOW, limits=LIMITS)
    for name, judged in one_by_one.judgements.items():
        unsettled = {
            path: judgement
            for path, judgement in judged.items()
            if judgement.state is not State.CURRENT or judgement.pending
        }
        assert dict(plan.judgements[name]) == unsettled, name
    assert [run.identity for run in plan.runs] == [run.identity for run in one_by_one.runs]
    assert plan.retire == one_by_one.retire
    seen = overview(GRAPH, facts, now=NOW, limits=LIMITS)
    assert states(seen) == states(one_by_one)
    assert [run.in_words for run in seen.runs] == [run.in_words for run in one_by_one.runs]
    together = facts.together([inputs_of(dataset) for dataset in GRAPH.datasets.values()], existing=True)
    for dataset in GRAPH.datasets.values():
        landing = landing_source(dataset) if dataset.landing else ""
        wanted = [
            WantedInputs(
                edge.upstream.name,
                {
                    key.path: [up.path for up in edge.dependency.upstream_of(key, now=NOW).keys]
                    for key in dataset.partitioning.keys(None, NOW)
                },
            )
            for edge in GRAPH.edges[dataset.name]
        ]
        assert facts.existing_partitions(dataset.name) == OneByOne(facts).existing_partitions(dataset.name)
        # Not only safe, but exact: else the first tick would be no cheaper.
        expected = OneByOne(facts).unsettled(dataset.name, landing, wanted)
        assert facts.unsettled(dataset.name, landing, wanted) == expected
        # And so it is when all datasets are asked about together.
        assert together.existing_partitions(dataset.name) == facts.existing_partitions(dataset.name)
        assert together.unsettled(dataset.name, landing, wanted) == expected


def inputs_of(dataset: Dataset) -> DatasetInputs:
    upstreams = tuple(edge.upstream.name for edge in GRAPH.edges[dataset.name])
    landing = landing_source(dataset) if dataset.landing else ""
    return DatasetInputs(dataset.name, landing, upstreams if dataset in {LANDED, SAME} else None)


def test_a_look_at_a_whole_graph_asks_no_statement_of_each_dataset(opened: psycopg.Connection) -> None:
    """The report of 5,000 datasets asked 20,031 statements."""
    fill(opened)
    with patch.object(psycopg.Cursor, "execute", autospec=True, side_effect=psycopg.Cursor.execute) as execute:
        asked = []
        for copies in (1, 40):
            datasets = {f"b.n{number}": replace(LANDED, name=f"b.n{number}") for number in range(copies)}
            execute.reset_mock()
            overview(Graph(datasets, {}, {}), CatalogFacts(opened), now=NOW)
            asked.append(execute.call_count)
    assert asked[0] == asked[1] < 8
