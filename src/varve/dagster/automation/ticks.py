"""The last ticks of sensors and schedules, as Dagster has recorded them: for the metrics.

Not here: what a tick does (sensors.py), and the metrics (varve/observe/metrics.py).
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from varve.observe.metrics import SensorTicks

if TYPE_CHECKING:
    import dagster as dg

_RECENT_SECONDS = 600


def last_ticks(instance: dg.DagsterInstance) -> list[SensorTicks]:
    """Return the ticks of each sensor and schedule that was ever switched on or ticked, by name.

    Dagster keeps the state of a code location that is not loaded any more, or has another name now: of several sensors
    of one name the one that ticked last says whether it is running.
    """
    after = time.time() - _RECENT_SECONDS
    by_name: dict[str, SensorTicks] = {}
    for state in instance.all_instigator_state():
        recent = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=after)
        newest = recent[:1] or instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        ticks = SensorTicks(
            state.instigator_name,
            state.is_running,
            newest[0].timestamp if newest else None,
            Counter(tick.status.value.lower() for tick in recent),
        )
        other = by_name.get(ticks.name)
        by_name[ticks.name] = ticks if other is None else max(ticks, other, key=lambda each: each.last or 0.0)
    return sorted(by_name.values(), key=lambda ticks: ticks.name)
