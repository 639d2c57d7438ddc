"""The metrics of a catalog in the text format of Prometheus, read from its tables when they are asked for.

Nothing is counted in a process: counters are rows of the catalog, so that a restart loses nothing, and any number of
processes may answer a scrape. The ticks are Dagster's, and are given by the caller (varve/dagster/automation/ticks.py).

Not here: serving them, and the dashboard (deploy/grafana).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from varve.observe import metric_statements as statements
from varve.observe.costs import Costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    import psycopg
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class SensorTicks:
    """The last ticks of one sensor or schedule.

    Attributes:
        name: as Dagster shows it.
        running: whether a person has switched it on.
        last: when the last tick began, in seconds since 1970; None where there was none.
        recent: how many ticks there were in the last ten minutes, by status in lower case.
    """

    name: str
    running: bool
    last: float | None
    recent: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class CatalogCollector(Collector):
    """Reads the metrics over one connection in autocommit mode, in one snapshot, which waits for nobody."""

    connection: psycopg.Connection
    ticks: Sequence[SensorTicks] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield each metric; called by the registry at a scrape."""
        with self.connection.transaction():
            self.connection.execute("set transaction isolation level repeatable read read only")
            now = self._one("select extract(epoch from clock_timestamp())::float8")
            metrics = [
                *self._ticks(now), *self._builds(), *self._publishes(), *self._waits(), *self._partitions(),
                *self._arrivals(), *self._captures(), *self._storage(),
            ]  # fmt: skip
        yield from metrics

    def _rows(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement).fetchall()

    def _one(self, statement: LiteralString) -> Any:
        return self._rows(statement)[0][0]

    def _ticks(self, now: float) -> Iterator[Metric]:
        running = GaugeMetricFamily("varve_sensor_running", "Whether a sensor is switched on.", labels=["sensor"])
        age = GaugeMetricFamily("varve_tick_age_seconds", "Since the last tick of a sensor.", labels=["sensor"])
        recent = GaugeMetricFamily(
            "varve_ticks_recent", "Ticks of a sensor in the last ten minutes.", labels=["sensor", "status"]
        )
        for tick in self.ticks:
            running.add_metric([tick.name], tick.running)
            if tick.last is not None:
                age.add_metric([tick.name], max(0.0, now - tick.last))
            for status, count in sorted(tick.recent.items()):
                recent.add_metric([tick.name, status], count)
        left_out = GaugeMetricFamily(
            "varve_left_out", "What the last tick of a sensor could not do.", labels=["sensor", "dataset", "kind"]
        )
        for *labels, count in self._rows(statements.LEFT_OUT):
            left_out.add_metric(labels, count)
        yield from (running, age, recent, left_out)

    def _builds(self) -> Iterator[Metric]:
        labels = ["dataset", "outcome"]
        families = (
            CounterMetricFamily("varve_runs", "Runs of a dataset that have ended.", labels=labels),
            CounterMetricFamily("varve_partitions_built", "Partitions that those runs had.", labels=labels),
            CounterMetricFamily("varve_run_seconds", "From begin to verified rows, or to the failure.", labels=labels),
            CounterMetricFamily("varve_rows_written", "Rows that those runs wrote.", labels=labels),
            CounterMetricFamily("varve_bytes_written", "Bytes that those runs wrote.", labels=labels),
        )
        for dataset, outcome, *values in self._rows(statements.BUILDS):
            for family, value in zip(families, values, strict=True):
                family.add_metric([dataset, outcome], value)
        yield from families

    def _publishes(self) -> Iterator[Metric]:
        count = CounterMetricFamily("varve_publishes", "Changes of what is current.", labels=["dataset", "kind"])
        last = GaugeMetricFamily(
            "varve_last_publish_timestamp_seconds", "When a dataset was published last.", labels=["dataset", "kind"]
        )
        for dataset, kind, publishes, at in self._rows(statements.PUBLISHES):
            count.add_metric([dataset, kind], publishes)
            last.add_metric([dataset, kind], at)
        yield from (count, last)

    def _waits(self) -> Iterator[Metric]:
        waits = SummaryMetricFamily(
            "varve_publish_wait_seconds", "From stored rows until they are current, waits for readers among it.",
            labels=["dataset"],
        )  # fmt: skip
        longest = GaugeMetricFamily(
            "varve_publish_wait_longest_seconds", "The longest such wait of the last hour.", labels=["dataset"]
        )
        for dataset, count, seconds, most in self._rows(statements.PUBLISH_WAITS):
            waits.add_metric([dataset], count, seconds)
            if most is not None:
                longest.add_metric([dataset], most)
        waiting = GaugeMetricFamily("varve_waiting_sessions", "Sessions that wait for a lock now.", labels=["who"])
        since = GaugeMetricFamily("varve_waiting_seconds", "How long the longest of them has waited.", labels=["who"])
        sessions = {who: (count, seconds) for who, count, seconds in self._rows(statements.WAITING_SESSIONS)}
        for who in ("reader", "varve"):
            count, seconds = sessions.get(who, (0, 0.0))
            waiting.add_metric([who], count)
            since.add_metric([who], seconds)
        oldest = GaugeMetricFamily(
            "varve_oldest_reader_seconds", "Age of the oldest reader's transaction, which a publish may wait for."
        )
        oldest.add_metric([], self._one(statements.OLDEST_SNAPSHOT))
        yield from (waits, longest, waiting, since, oldest)

    def _partitions(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily("varve_partitions", "Partitions by state.", labels=["dataset", "state"])
        rows = GaugeMetricFamily("varve_rows", "Rows that readers see.", labels=["dataset"])
        lagging = GaugeMetricFamily(
            "varve_projection_lag_partitions", "Partitions that the Hive table does not show yet.", labels=["dataset"]
        )
        for dataset, store, current, row_count, behind in self._rows(statements.CURRENT):
            partitions.add_metric([dataset, "current"], current)
            rows.add_metric([dataset], row_count)
            if store == "lake":
                lagging.add_metric([dataset], behind)
        for dataset, state, count in self._rows(statements.PARTITIONS):
            partitions.add_metric([dataset, state], count)
        leases = GaugeMetricFamily("varve_leases", "Runs that have begun and not ended, by lease.", labels=["state"])
        states = dict(self._rows(statements.LEASES))
        for state in ("held", "starting", "expired", "lost"):
            leases.add_metric([state], states.get(state, 0))
        yield from (partitions, rows, lagging, leases)

    def _arrivals(self) -> Iterator[Metric]:
        labels = ["dataset", "kind"]
        rejected = GaugeMetricFamily("varve_rejected_arrivals", "What arrived and is not taken.", labels=labels)
        age = GaugeMetricFamily("varve_rejected_arrival_age_seconds", "Since when the oldest is there.", labels=labels)
        for dataset, kind, count, seconds in self._rows(statements.REJECTED):
            rejected.add_metric([dataset, kind], count)
            age.add_metric([dataset, kind], seconds)
        taken = GaugeMetricFamily("varve_arrivals", "Arrived partitions that are taken.", labels=["dataset"])
        last = GaugeMetricFamily(
            "varve_last_arrival_timestamp_seconds", "When the last new content was taken.", labels=["dataset"]
        )
        for dataset, count, at in self._rows(statements.ARRIVALS):
            taken.add_metric([dataset], count)
            last.add_metric([dataset], at)
        yield from (rejected, age, taken, last)

    def _captures(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("varve_capture_running", "Whether a capture runs.", labels=["dataset", "state"])
        captured = GaugeMetricFamily(
            "varve_capture_lag_seconds", "Since all that the source had was captured last.", labels=["dataset"]
        )
        applied = GaugeMetricFamily(
            "varve_capture_apply_lag_seconds", "Since captured changes were applied last.", labels=["dataset"]
        )
        quarantined = GaugeMetricFamily(
            "varve_capture_quarantined_events", "Events that cannot be decided.", labels=["dataset"]
        )
        captures = self._rows(statements.CAPTURES) if self._one(statements.HAS_CAPTURES) else []
        for dataset, state, captured_seconds, applied_seconds, events in captures:
            running.add_metric([dataset, state], state == "running")
            quarantined.add_metric([dataset], events)
            if captured_seconds is not None:
                captured.add_metric([dataset], captured_seconds)
            if applied_seconds is not None:
                applied.add_metric([dataset], applied_seconds)
        yield from (running, captured, applied, quarantined)

    def _storage(self) -> Iterator[Metric]:
        held = GaugeMetricFamily("varve_storage_bytes", "Bytes that batches hold.", labels=["dataset", "batches"])
        for dataset, storage in Costs(self.connection).storage().items():
            held.add_metric([dataset, "current"], storage.current)
            held.add_metric([dataset, "retired"], storage.retired)
            held.add_metric([dataset, "pinned"], storage.pinned)
            held.add_metric([dataset, "environments"], storage.environments)
        yield held


def exposition(connection: psycopg.Connection, ticks: Sequence[SensorTicks] = ()) -> bytes:
    """Return all metrics of a catalog in the text format of Prometheus, as UTF-8 (`CONTENT_TYPE`).

    `connection` is in autocommit mode; the catalog's tables must be there. `ticks` are those of Dagster's sensors,
    without which the others are given all the same. Raises psycopg.Error where the catalog cannot be read.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(CatalogCollector(connection, ticks))
    return generate_latest(registry)
