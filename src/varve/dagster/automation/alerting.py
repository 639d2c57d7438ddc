"""Alerts: facts are read, conditions follow, what is new is sent. By the sensor `alerts`, and by a command.

A channel that fails is tried again later. It ends neither a tick nor a run, and keeps no other channel waiting. What
differs from machine to machine is looked at from one of them only: where the sensor is evaluated, as long as it is.

Not here: which conditions hold (varve/planning/operations), what was opened, and whose view counts
(varve/catalog/history/alerts), and sending (varve/services/channels.py).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg
import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.owners import Owners
from varve.catalog.history.alerts.alerts import Alerts
from varve.catalog.history.alerts.facts import AlertCatalog
from varve.catalog.history.alerts.messages import Messages
from varve.catalog.history.alerts.watch import MACHINE_SECONDS, SENSOR, Watch
from varve.catalog.rejected import RejectedArrivals
from varve.cdc.lag import capture_facts
from varve.dagster.automation.planner_facts import limits_of
from varve.dagster.automation.reconciling import Reconciler, default_status, looked_up
from varve.dagster.instance import sensor_daemon_seen
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.errors import counted
from varve.observe.disks import disks_of
from varve.planning.operations.conditions import AlertFacts, AlertLimits, conditions
from varve.planning.operations.digest import digest
from varve.planning.operations.quiet_hours import QuietHours
from varve.planning.reconcile import overview
from varve.services.channels import channels_of
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.cdc.captured_table import CapturedTable
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.operations.conditions import DiskFacts
    from varve.planning.reconcile import RunPlan
    from varve.project import Project
    from varve.services.settings import Settings

SENSOR_NAME = "alerts"
QUIET, ELSEWHERE = "quiet hours", "somebody else sends now"


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation has done.

    Attributes:
        is_ours: whether this process has evaluated; else another one does so right now.
        sent: by channel how many messages it has taken.
        unsent: by channel why it was told nothing, or nothing was due for it.
        watcher: who looks at disks and captures in the place of this process; "" where it has done so itself.
    """

    is_ours: bool = True
    opened: int = 0
    closed: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    unsent: dict[str, str] = field(default_factory=dict)
    watcher: str = ""

    def __str__(self) -> str:
        if not self.is_ours:
            return "Another process evaluates the alerts right now."
        parts = [f"{counted(self.opened, 'alert')} opened, {self.closed} closed."]
        parts += [f"{channel} was told of {count}." for channel, count in self.sent.items()]
        parts += [f"{channel} was told nothing: {reason}." for channel, reason in self.unsent.items()]
        if self.watcher:
            parts.append(f"Disks and captures are looked at by {self.watcher}.")
        return " ".join(parts)


def alert_sensor(
    graph: Graph, captured: Sequence[CapturedTable], project: Project, *, on: bool = False
) -> dg.SensorDefinition:
    """Return the sensor that evaluates the alerts, and sends what is new; it requests no run."""
    reconciler = Reconciler(graph, project)

    @dg.sensor(
        name=SENSOR_NAME,
        minimum_interval_seconds=project.sensor_settings.alerts_seconds,
        default_status=default_status(on=on),
        description="What is late, rejected, given up, broken, behind or full is told to the channels of the settings.",
    )
    def evaluate_alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        def use_plan(catalog: Catalog, plan: RunPlan, members: Members) -> dg.SkipReason:
            settings = project.settings
            _watch(catalog.connection, settings).take(SENSOR, _sensor_seconds(settings))
            # While this runs, the daemon ticks; and of a stopped one only the command can tell.
            facts = read_facts(
                graph, captured, catalog.connection, settings, plan, members=members, daemon_seen=0.0, watching=True
            )
            return dg.SkipReason(str(evaluated(catalog.connection, settings, facts)))

        return reconciler.look(
            context.instance, SENSOR_NAME, lambda *_: sets_of(context.instance, graph).members(), use_plan
        )

    return evaluate_alerts


def evaluate(
    graph: Graph, captured: Sequence[CapturedTable], instance: dg.DagsterInstance, settings: Settings
) -> Evaluation:
    """Evaluate the alerts once, as the sensor does; nothing is launched. Raises VarveError without a server.

    What differs from machine to machine is left to the sensor where that looks, else to the machine that does already.
    """
    with connect(settings, application="varve alerts") as connection:
        Catalog(connection).ensure_schema()
        catalog_facts, members = looked_up(graph, connection, instance, settings)
        plan = overview(
            graph, catalog_facts, now=pendulum.now("UTC"), members=members, limits=limits_of(settings),
            codes=catalog_facts.codes, fatal=(psycopg.Error,),
        )  # fmt: skip
        machine = socket.gethostname()
        watcher = _watch(connection, settings).take(machine, MACHINE_SECONDS)
        # A sensor that looks is a sign of life. Where Dagster knows of none, it may have another storage here.
        seen = None if watcher == SENSOR else sensor_daemon_seen(instance) or None
        facts = read_facts(
            graph, captured, connection, settings, plan, members=members, daemon_seen=seen, watching=watcher == machine
        )
        return replace(evaluated(connection, settings, facts), watcher="" if watcher == machine else watcher)


def read_facts(
    graph: Graph,
    captured: Sequence[CapturedTable],
    connection: psycopg.Connection,
    settings: Settings,
    plan: RunPlan,
    *,
    members: Members,
    daemon_seen: float | None,
    watching: bool,
) -> AlertFacts:
    """Read everything that conditions depend on, as it is now.

    `daemon_seen` is 0.0 where the daemon itself asks, and None where nobody knows. Disks, the lake and the sources of
    captures are looked at where this process is `watching`.
    """
    now = pendulum.now("UTC").timestamp()
    catalog = AlertCatalog(connection)
    return AlertFacts(
        now=now,
        datasets=graph.datasets,
        members=members,
        freshness={
            name: catalog.freshness(dataset, members, now)
            for name, dataset in graph.datasets.items()
            if dataset.policy.fresh_within is not None
        },
        rejected=RejectedArrivals(connection).all(),
        # A dataset that could not be judged has no judgements: what was given up of it is not over.
        judgements=plan.judgements,
        unjudged=plan.failed.keys(),
        unusable=_unusable(graph, connection, settings),
        expectations=catalog.failed_expectations(),
        outages=catalog.outages(),
        captures=capture_facts(captured, connection, settings) if watching else None,
        projections=catalog.projections(),
        disks=_disks(settings) if watching else None,
        daemon_seen=daemon_seen,
        limits=AlertLimits(settings.alerts_disk_percent, settings.alerts_lag_minutes * 60),
        project=settings.project_name,
    )


def _watch(connection: psycopg.Connection, settings: Settings) -> Watch:
    return Watch(connection, settings.project_name)


def _sensor_seconds(settings: Settings) -> float:
    """So long after its last look the sensor counts as one that looks no more."""
    return max(settings.alerts_lag_minutes * 60, 3.0 * settings.alerts_seconds)


def _unusable(graph: Graph, connection: psycopg.Connection, settings: Settings) -> frozenset[str]:
    """The datasets with open alerts that the code declares, and that cannot be used as it is written."""
    told = {alert.identity.dataset for alert in Alerts(connection, settings.project_name).list()}
    return frozenset(name for name in told if name and graph.broken_dataset(name) is not None)


def _disks(settings: Settings) -> list[DiskFacts] | None:
    """How full the disks are; None where that cannot be found out, as of a share that has gone away."""
    try:
        return disks_of(settings)
    except OSError:
        return None


def evaluated(connection: psycopg.Connection, settings: Settings, facts: AlertFacts) -> Evaluation:
    """Open and close alerts by these facts, and send what is to be said."""
    alerts = Alerts(connection, settings.project_name)
    untouched = {*Owners(connection, settings.project_name).others(), *facts.unusable}
    with alerts.evaluating() as is_ours:
        if not is_ours:
            return Evaluation(is_ours=False)
        opened, closed = alerts.update(
            list(conditions(facts).values()), facts.known_kinds, facts.now, untouched, facts.unknown,
            windows_looked_at=facts.windows_looked_at,
        )  # fmt: skip
        evaluation = Evaluation(opened=opened, closed=closed)
    Messages(connection, settings.project_name).note(list(settings.alerts))
    deliver(connection, settings, facts.now, evaluation)
    return evaluation


def deliver(connection: psycopg.Connection, settings: Settings, now: float, evaluation: Evaluation) -> None:
    """Send each channel what it has not been told, in one message; what it does not take is tried again later."""
    quiet = QuietHours.of(settings.alerts_quiet) if settings.alerts_quiet else None
    is_quiet = quiet is not None and quiet.until(pendulum.from_timestamp(now)) is not None
    messages = Messages(connection, settings.project_name)
    for channel in channels_of(settings):
        with messages.sending(channel.name) as is_ours:
            waiting = messages.waiting(channel.name) if is_ours else []
            down = messages.down().get(channel.name)
            if not is_ours:
                evaluation.unsent[channel.name] = ELSEWHERE
            elif not waiting:
                continue
            elif is_quiet:
                evaluation.unsent[channel.name] = QUIET
            elif down is not None and down.next_try_at > now:
                evaluation.unsent[channel.name] = f"{down.reason}; it is tried again later"
            elif problem := channel.send(digest(waiting)):
                messages.refused(channel.name, problem, now)
                evaluation.unsent[channel.name] = problem
            else:
                messages.sent(channel.name, waiting, now)
                evaluation.sent[channel.name] = len(waiting)
