"""Makes large catalogs: any number of datasets, partitions and batches with history and traces, by a few statements.

What it makes is consistent: every current batch is the newest of its partition and was made from what is current, each
retired one from what was current then; publishes, deployments and arrivals are there, and a few failed builds. Only the
data is not: locations lead nowhere.

Not here: what is asked of such a catalog (catalog_scale.py).
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.rows import declaration
from varve.model.dataset import Dataset, StoreKind
from varve.model.landing.options import LandingOptions
from varve.model.partitions.dimension import TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable


START = pendulum.datetime(2015, 1, 1)
LAYERS = 10
CODE = "1"
# One partition in so many has a failed build before its current batch.
_FAILED_EVERY = 50
# So many of the rounds before the current one are retired and kept; earlier ones were swept.
_KEPT_ROUNDS = 2
_SHAPE = """
    create temp table shape (
        place bigint, name text, read_place bigint, upstream text, source text, pattern text, step interval,
        partitions bigint
    )
"""
_GIVEN = """
    create temp table given as select %s::timestamp as start, 0 as first, %s::int as last,
        %s::bigint as base, %s::bigint as gap, %s::bigint as builds, %s::bigint as datasets, %s::bigint as together,
        %s::bigint as width
"""
# A batch by its place: dataset, partition `k`, round `r` (0 is the first, rounds - 1 the current one). The id of its
# build follows from them, so that traces need no join; one build has the same round of `together` partitions.
_PLACED = """
    from given g cross join shape s
    cross join lateral generate_series(0, s.partitions - 1) k
    cross join lateral (select to_char(g.start + k * s.step, s.pattern) as path) p
    cross join lateral generate_series(g.first, g.last) r
    cross join lateral (
        select g.base + g.gap * ((r * g.datasets + s.place) * g.builds + k / g.together) as id,
            g.base + g.gap * ((r * g.datasets + s.read_place) * g.builds + k / g.together) as read_id,
            g.base + g.gap * (((r + 1) * g.datasets + s.place) * g.builds + k / g.together) as next_id
    ) i
"""
_BATCHES = f"""
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files,
        inputs, started_at, staged_at, published_at, retired_at, swept_at, deleted_at, content)
    select s.name, p.path, i.id,
        case when r = g.last then 'published' when r >= g.last - {_KEPT_ROUNDS} then 'retired' else 'swept' end,
        'run-' || i.id, '{CODE}', '/nowhere/' || replace(s.name, '.', '/') || '/' || p.path || '/batch_id=' || i.id,
        1000 + k % 977, 40000 + k % 9973, 1,
        jsonb_build_array(jsonb_build_array(s.source, p.path,
            case when s.upstream is null then md5(s.name || p.path || r) else i.read_id::text end)),
        to_timestamp(i.id / 1e3), to_timestamp(i.id / 1e3 + 20), to_timestamp(i.id / 1e3 + 21),
        case when r < g.last then to_timestamp(i.next_id / 1e3 + 21) end,
        case when r < g.last - {_KEPT_ROUNDS} then to_timestamp(i.next_id / 1e3) + interval '8 days' end,
        case when r < g.last - {_KEPT_ROUNDS} then to_timestamp(i.next_id / 1e3) + interval '8 days' end,
        md5(s.name || p.path || r)
    {_PLACED}
"""
_FAILED = f"""
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, started_at, failed_at, failure)
    select s.name, p.path, i.id - 1, 'failed', 'run-' || i.id - 1, '{CODE}', to_timestamp((i.id - 1) / 1e3),
        to_timestamp((i.id - 1) / 1e3 + 9), 'the disk of a worker was full'
    {_PLACED} where k % {_FAILED_EVERY} = 0
"""
_PUBLISHES = """
    insert into varve.publish (dataset, build_id, kind, run_id, published_at, recorded)
    select dataset, batch_id, 'publish', min(run_id), min(published_at), true
    from varve.batch where published_at is not null group by dataset, batch_id order by batch_id
"""
_PUBLISHED = """
    insert into varve.published (dataset, partition, build_id, batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch where published_at is not null
"""
_CURRENT = """
    insert into varve.current (dataset, partition, batch_id, projected_batch_id)
    select dataset, partition, batch_id, batch_id from varve.batch where state = 'published'
"""
_ARRIVALS = """
    insert into varve.arrival (dataset, partition, uri, bytes, fingerprint, arrived_at, stamp)
    select b.dataset, b.partition, 'file:///landing/' || b.dataset || '/' || b.partition || '.csv', 30000,
        b.inputs -> 0 ->> 2, b.started_at - interval '1 minute', 'then'
    from varve.batch b join shape s on s.name = b.dataset where s.upstream is null and b.state = 'published'
"""
_DEPLOYMENTS = (
    """
    insert into varve.deployment (dataset, code_version, decision, source, deployed_by, deployed_at)
    select name, %s, 'rebuild', 'select 1', 'benchmark', to_timestamp(%s / 1e3) from shape
    """,
    """
    insert into varve.deployed (dataset, deployment, code_version, may_be_mixed)
    select dataset, id, code_version, false from varve.deployment
    """,
)


@dataclass(frozen=True, slots=True)
class CatalogSize:
    """How large a catalog is.

    Attributes:
        datasets: in ten layers; each reads the dataset at its place in the layer above, partition by partition.
        partitions: of all datasets together.
        rounds: how many batches each partition had, one after the other.
        large: the partitions of the largest dataset and of its reader, both by the hour; all others are daily.
        together: how many partitions a build computed.
    """

    datasets: int = 5_000
    partitions: int = 1_000_000
    rounds: int = 10
    large: int = 100_000
    together: int = 10

    def __post_init__(self) -> None:
        if self.datasets < 2 * LAYERS:
            raise ValueError(
                f"A catalog of {LAYERS} layers needs {2 * LAYERS} datasets or more, and {self.datasets} were asked for."
            )

    @property
    def width(self) -> int:
        """How many datasets a layer has."""
        return self.datasets // LAYERS

    def partitions_of(self, place: int) -> int:
        """How many partitions the dataset at this place has."""
        if place in {0, self.width}:
            return self.large
        return max(1, (self.partitions - 2 * self.large) // (self.datasets - 2))

    def read_by(self, place: int) -> int | None:
        """The place of the dataset that the one at this place reads; None where files arrive for it."""
        # Only the reader of the largest dataset is by the hour too.
        return None if place < self.width else place - self.width + (place == 2 * self.width)

    @property
    def now(self) -> pendulum.DateTime:
        """A moment at which every window of every dataset is over."""
        return START.add(hours=max(self.large, 24 * self.partitions_of(1)) + 1)


def graph_of(size: CatalogSize) -> Graph:
    """The graph whose catalog `fill` makes: the first layer arrives as files, by the partition."""
    datasets: list[Dataset] = []
    for place in range(size.datasets):
        count, hourly = size.partitions_of(place), place in {0, size.width}
        end = START.add(hours=count) if hourly else START.add(days=count)
        dimension = TimeDimension("t", Grain.HOUR if hourly else Grain.DAY, START, end)
        landing = LandingOptions(files="{t}.csv") if place < size.width else False
        name, columns = f"bench.d{place:05}", Schema((Column("n", ColumnType.BIGINT),))
        datasets.append(Dataset(name, Partitioning((dimension,)), columns, StoreKind.LAKE, "Rows.", landing=landing))
    reads = {
        dataset.name: () if (read := size.read_by(place)) is None else (Reads(datasets[read]),)
        for place, dataset in enumerate(datasets)
    }
    return Graph({dataset.name: dataset for dataset in datasets}, reads, {dataset.name: CODE for dataset in datasets})


def fill(
    connection: psycopg.Connection, graph: Graph, size: CatalogSize, told: Callable[[str], None] = lambda _: None
) -> None:
    """Fill an empty catalog, over a connection of a superuser in autocommit mode; `told` is called before each step.

    No trigger runs: nothing is noted as changed, as if all planners had looked since.
    """
    Catalog(connection).ensure_schema()
    names = list(graph.datasets)
    builds = -(-max(size.partitions_of(0), size.partitions_of(1)) // size.together)
    # Half a year of builds, which ended a month ago.
    ended = dt.datetime.now(dt.UTC) - dt.timedelta(days=30)
    gap = max(2, int(dt.timedelta(days=180).total_seconds() * 1_000) // (size.rounds * size.datasets * builds))
    base = int(ended.timestamp() * 1_000) - gap * size.rounds * size.datasets * builds
    given = START.naive(), size.rounds - 1, base, gap, builds, size.datasets, size.together, size.width
    connection.execute("set session_replication_role = replica; set synchronous_commit = off; set work_mem = '256MB'")
    connection.execute(psycopg.ClientCursor(connection).mogrify(_GIVEN, given))
    connection.execute(_SHAPE)
    with connection.cursor().copy("copy shape from stdin") as copy:
        for place, name in enumerate(names):
            hourly = place in {0, size.width}
            read = size.read_by(place)
            upstream = None if read is None else names[read]
            pattern = '"t="YYYY-MM-DD"T"HH24' if hourly else '"t="YYYY-MM-DD'
            step = "1 hour" if hourly else "1 day"
            source, count = upstream or f"landing:{name}", size.partitions_of(place)
            copy.write_row((place, name, read, upstream, source, pattern, step, count))
    with connection.cursor().copy("copy varve.dataset (dataset, store, declaration) from stdin") as copy:
        for name, dataset in graph.datasets.items():
            copy.write_row((name, dataset.store, json.dumps(declaration(dataset))))
    connection.execute(_DEPLOYMENTS[0], (CODE, base))
    connection.execute(_DEPLOYMENTS[1])
    told("batches")
    connection.execute(_BATCHES)
    told("failed builds")
    connection.execute("update given set first = last")
    connection.execute(_FAILED)
    for title, statement in (
        ("publishes", _PUBLISHES), ("what they published", _PUBLISHED), ("what is current", _CURRENT),
        ("arrivals", _ARRIVALS),
    ):  # fmt: skip
        told(title)
        connection.execute(statement)
    connection.execute("update varve.clock set last_batch_id = (select max(batch_id) from varve.batch)")
    told("vacuum and statistics")
    connection.execute("reset session_replication_role; reset work_mem")
    connection.execute("vacuum analyze")
