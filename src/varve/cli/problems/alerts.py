"""`varve alerts`: what people are told of, and whether the channels work.

Not here: evaluating (varve/dagster/automation/alerting.py), and which conditions there are (varve/planning/operations).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pendulum
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.history.alerts.alerts import Alerts
from varve.catalog.history.alerts.messages import Messages
from varve.cli.context import chosen_project, chosen_settings
from varve.cli.printing import Table
from varve.model.errors import VarveError, counted
from varve.planning.operations.digest import Digest
from varve.services.channels import channels_of
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.history.alerts.alerts import Alert
    from varve.services.settings import Settings

_NO_CHANNEL = (
    'VARVE_ALERTS names no channel: nobody is told. Write for example VARVE_ALERTS=\'{"team": "slack://..."}\'; '
    "docs/alerts.md says how."
)
_TRIAL = Digest("Varve: a trial message", "Nothing is wrong. Somebody has run `varve alerts --test`.")


def show(console: Console, *, closed_too: bool, evaluate: bool, as_json: bool) -> None:
    """Print the alerts and the channels; look first where that is asked for."""
    settings = chosen_settings()
    evaluation = _evaluate(settings) if evaluate else None
    with connect(settings, application="varve alerts") as connection:
        Catalog(connection).ensure_schema()
        alerts = Alerts(connection).list(closed_too=closed_too)
        channels = _channel_values(settings, connection)
    if as_json:
        values = {"alerts": [_values(alert) for alert in alerts], "channels": channels, "evaluated": evaluation}
        console.print_json(json.dumps(values))
        return
    if evaluation is not None:
        console.print(evaluation, markup=False, highlight=False, soft_wrap=True)
    _print_alerts(console, alerts)
    for channel in channels:
        console.print(_channel_text(channel), markup=False, highlight=False, soft_wrap=True)
    if not channels:
        console.print(_NO_CHANNEL, markup=False, highlight=False, soft_wrap=True)


def test(console: Console, *, as_json: bool) -> bool:
    """Send a trial message to every channel, and print what happened; returns whether all have taken it.

    Raises VarveError where there is no channel.
    """
    channels = channels_of(chosen_settings())
    if not channels:
        raise VarveError(_NO_CHANNEL)
    results = [{"channel": channel.name, "problem": channel.send(_TRIAL) or None} for channel in channels]
    if as_json:
        console.print_json(json.dumps({"channels": results}))
    else:
        for result in results:
            text = f"{result['channel']}: {result['problem'] or 'has taken the trial message'}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    return all(result["problem"] is None for result in results)


def open_alert_values(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """Return the open alerts, as plain values; empty where the catalog has no alerts yet."""
    try:
        return [_values(alert) for alert in Alerts(connection).list()]
    except psycopg.errors.UndefinedTable:
        return []


def show_open_alerts(console: Console, alerts: Sequence[dict[str, Any]]) -> None:
    """Print how many alerts are open, for the status."""
    if alerts:
        text = f"{counted(len(alerts), 'alert')} open: varve alerts lists them."
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _evaluate(settings: Settings) -> str:
    from varve.dagster.automation.alerting import evaluate
    from varve.dagster.discovery import load_project
    from varve.dagster.instance import open_instance

    loaded = load_project(chosen_project())
    with open_instance(settings) as instance:
        return str(evaluate(loaded.graph, loaded.captured, instance, settings))


def _values(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.number,
        "kind": str(alert.identity.kind),
        "dataset": alert.identity.dataset or None,
        "subject": alert.identity.subject or None,
        "text": alert.text,
        "opened_at": _moment(alert.opened_at),
        "closed_at": None if alert.closed_at is None else _moment(alert.closed_at),
    }


def _channel_values(settings: Settings, connection: psycopg.Connection) -> list[dict[str, Any]]:
    messages = Messages(connection, settings.project_name)
    counts, down = messages.counts(), messages.down()
    return [
        {
            "channel": channel.name,
            "waiting": counts.get(channel.name, 0),
            "down_since": _moment(down[channel.name].since) if channel.name in down else None,
            "problem": down[channel.name].reason if channel.name in down else None,
            "next_try_at": _moment(down[channel.name].next_try_at) if channel.name in down else None,
        }
        for channel in channels_of(settings)
    ]


def _channel_text(channel: dict[str, Any]) -> str:
    waiting = f"{counted(channel['waiting'], 'message')} waiting" if channel["waiting"] else "told of everything"
    down = f"; down since {channel['down_since']}: {channel['problem']}; tried again at {channel['next_try_at']}"
    return f"channel {channel['channel']}: {waiting}{down if channel['problem'] else ''}"


def _print_alerts(console: Console, alerts: Sequence[Alert]) -> None:
    if not alerts:
        console.print("No alert is open.")
        return
    table = Table("since", "kind", "dataset", "about", "what", "until")
    for alert in alerts:
        identity = alert.identity
        until = "" if alert.closed_at is None else _moment(alert.closed_at)
        table.add_row(
            *map(
                _plain, (_moment(alert.opened_at), identity.kind, identity.dataset, identity.subject, alert.text, until)
            )
        )
    console.print(table, markup=False, highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _moment(instant: float) -> str:
    return pendulum.from_timestamp(instant).isoformat(timespec="seconds")
