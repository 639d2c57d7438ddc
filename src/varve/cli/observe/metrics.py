"""`varve metrics`: the metrics as Prometheus reads them. Not here: what they are (varve/observe/metrics.py)."""

from __future__ import annotations

from varve.cli.context import chosen_settings
from varve.cli.observe.opened import opened_catalog
from varve.dagster.automation.ticks import last_ticks
from varve.dagster.instance import open_instance
from varve.observe.metrics import exposition


def text() -> str:
    """Return the metrics of the chosen project's catalog. Raises VarveError where there is none."""
    settings = chosen_settings()
    with opened_catalog(settings, "varve metrics") as connection, open_instance(settings, starting=False) as instance:
        return exposition(connection, last_ticks(instance)).decode()
