"""Parses `TIMESERIES(...)`: intervals, crons, files of calendars, starts and time zones.

Not here: the windows themselves (varve/model/partitions/calendar.py).
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum

from varve.model.errors import VarveError, nearest
from varve.model.partitions.calendar import Every, calendar_of, first_from
from varve.model.partitions.grain import Grain
from varve.model.partitions.own_calendar import Calendar, CalendarError
from varve.model.partitions.time_dimension import bound_problem
from varve.model.partitions.zone import stretch
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError, source_of
from varve.sql.syntax.sql_file import TimeSeries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.partitions.calendar import Tiling
    from varve.sql.syntax.tokens import Cursor

_EXAMPLE = "TIMESERIES(INTERVAL 1 DAY, START '2024-01-01')"
_WORDS = ("INTERVAL", "CRON", "CALENDAR", "START", "END", "LAST", "RETENTION", "TIMEZONE", "ANCHOR")
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
# Months count as 31 days and years as 366, so that data is kept at least as long as the file says.
_DAYS = {"MONTH": 31, "QUARTER": 92, "YEAR": 366}
_MOST_YEARS = 1_000
UNITS = (*_SECONDS, *_MONTHS)
_SHORT = dt.timedelta(days=92)
# A month has four weeks and more, in February with an hour less where the clock goes forward.
_LONGEST_WEEKS = 27 * 86_400
# `CALENDAR 'nyse'` is the file `nyse.calendar` beside the SQL file, or in a folder above it.
ENDING = ".calendar"
_NAMED = re.compile(r"\bCALENDAR\s+'([^']*)'", re.IGNORECASE)


def parse_timeseries(at: Cursor, variable: str, start: int) -> TimeSeries:
    """Parse the rest of a generator, from its opening parenthesis. Raises SqlError."""
    arguments, spans = _arguments(at)
    span = Span(start, at.behind)
    if len(arguments.keys() & {"INTERVAL", "CRON", "CALENDAR"}) != 1:
        at.fail(f"a time series has either INTERVAL, CRON or CALENDAR; write {_EXAMPLE}.", span)
    if "START" not in arguments and "LAST" not in arguments:
        at.fail(f"START is missing; write {_EXAMPLE}, or LAST 30 DAYS for a series that moves with time.", span)
    for word in ("START", "END", "RETENTION") if "LAST" in arguments else ():
        if word in arguments:
            at.fail(f"LAST says from when to when windows are kept, and {word} too; take one out.", spans[word])
    timezone = arguments.get("TIMEZONE", "UTC")
    try:
        stretch(timezone, 0)
    except VarveError as error:
        at.fail(str(error), spans["TIMEZONE"])
    first = _first(at, arguments, timezone, spans)
    end = _moment(at, arguments["END"], timezone, spans["END"]) if "END" in arguments else None
    anchor = _moment(at, arguments["ANCHOR"], timezone, spans["ANCHOR"]) if "ANCHOR" in arguments else first
    tiling = _tiling(at, arguments, spans, anchor)
    if "LAST" in arguments and "ANCHOR" not in arguments and isinstance(tiling, Every):
        at.fail(
            "such windows are counted from a moment, and a series with LAST has no START: write ANCHOR '2024-01-01'.",
            spans["INTERVAL"],
        )
    if "ANCHOR" in arguments and not isinstance(tiling, Every):
        at.fail("ANCHOR is for intervals that calendars do not know, such as INTERVAL 90 MINUTES.", spans["ANCHOR"])
    try:
        calendar_of(tiling, timezone)
    except VarveError as error:
        at.fail(str(error), spans.get("CRON", spans.get("CALENDAR", span)))
    if "LAST" in arguments:
        window_start = first_from(calendar_of(tiling, timezone), int(first.timestamp()))
        first = pendulum.from_timestamp(window_start, tz=timezone)
    _check_bounds(at, tiling, first, end, spans, span)
    kept = _retention(arguments)
    if "LAST" in arguments and arguments["LAST"][1] in _MONTHS and _has_months(tiling, first):
        number, unit = arguments["LAST"]
        kept = _fewest_days(number * _MONTHS[unit])
    return TimeSeries(variable, tiling, first, end, kept, span, moves="LAST" in arguments)


def _arguments(at: Cursor) -> tuple[dict[str, Any], dict[str, Span]]:
    arguments: dict[str, Any] = {}
    spans: dict[str, Span] = {}
    at.needs("(", example=_EXAMPLE)
    while not at.takes(")"):
        begin = at.span
        word = next((keyword for keyword in _WORDS if at.takes(keyword)), None)
        if word is None:
            text = at.token.text if at.token else ""
            at.fail(f"unexpected {at.shown_token} in TIMESERIES; it has {', '.join(_WORDS)}.{nearest(text, _WORDS)}")
        if word in arguments:
            at.fail(f"{word} is given twice; take one out.", begin)
        value_at = at.span
        arguments[word] = (
            _length(at) if word in {"INTERVAL", "RETENTION", "LAST"} else at.string(f"the value of {word}")[0]
        )
        spans[word] = Span(value_at.start, at.behind)
        if not at.sees(")"):
            at.needs(",", example=_EXAMPLE)
    return arguments, spans


def _length(at: Cursor) -> tuple[int, str]:
    at.takes("INTERVAL")
    number, _ = at.number("a length, for example 1 DAY")
    text = at.token.text.upper() if at.token else ""
    unit = next((name for name in UNITS if text in {name, f"{name}S"}), None)
    if unit is None:
        at.fail(f"expected a unit ({', '.join(UNITS)}), found {at.shown_token}.{nearest(text, UNITS)}")
    if number * (_DAYS[unit] if unit in _DAYS else _SECONDS[unit] / 86_400) > _MOST_YEARS * _DAYS["YEAR"]:
        at.fail(
            f"{number:,} {unit.lower()}s are more than {_MOST_YEARS:,} years, which reach behind the first date there "
            "is; to keep something for ever, leave it out."
        )
    at.place += 1
    return number, unit


def _tiling(at: Cursor, arguments: dict[str, Any], spans: dict[str, Span], anchor: pendulum.DateTime) -> Tiling:
    if "CRON" in arguments:
        return str(arguments["CRON"])
    if "CALENDAR" in arguments:
        return read_calendar(at, arguments["CALENDAR"], spans["CALENDAR"])
    number, unit = arguments["INTERVAL"]
    if "ANCHOR" not in arguments and number == 1 and unit not in {"SECOND", "MINUTE"}:
        return Grain(unit.lower())
    if unit in _SECONDS:
        return Every(dt.timedelta(seconds=number * _SECONDS[unit]), anchor)
    months = number * _MONTHS[unit]
    if 12 % months:
        at.fail(
            f"INTERVAL {number} {unit}: only lengths that divide a year begin every year alike: 1, 2, 3, 4, 6 or 12 "
            "months.",
            spans["INTERVAL"],
        )
    return f"0 0 1 */{months} *" if months < 12 else Grain.YEAR


def _moment(at: Cursor, text: str, timezone: str, span: Span) -> pendulum.DateTime:
    try:
        moment = pendulum.parse(text, tz=timezone)
    except ValueError:
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        at.fail(f"'{text}' is no moment; write '2024-01-01' or '2024-01-01T10:30'.", span)
    return moment.in_timezone(timezone)


def _check_bounds(  # noqa: PLR0917
    at: Cursor,
    tiling: Tiling,
    first: pendulum.DateTime,
    end: pendulum.DateTime | None,
    spans: dict[str, Span],
    span: Span,
) -> None:
    calendar = calendar_of(tiling, first.timezone_name or "UTC")
    for word, moment in (("START", first), ("END", end)):
        if moment is None:
            continue
        if problem := bound_problem(calendar, moment, is_start=word == "START"):
            at.fail(f"{word} is not where a window begins; {problem}.", spans.get(word, spans.get("CALENDAR", span)))
    if end is not None and end <= first:
        at.fail(
            f"END is not after START ({first.to_date_string()}); write a later one, or leave it out: the series then "
            "goes on without end.",
            spans["END"],
        )


def _first(at: Cursor, arguments: dict[str, Any], timezone: str, spans: dict[str, Span]) -> pendulum.DateTime:
    """Return START; for LAST, a moment before all windows that are kept now, which most loads of the file agree about.

    Windows between that moment and those that are kept are past their retention, so that it matters to nobody which it
    is: it is the begin of the month, or of the year, in which the oldest window lies that is kept.
    """
    if "START" in arguments:
        return _moment(at, arguments["START"], timezone, spans["START"])
    length = _as_time(*arguments["LAST"])
    return (pendulum.now(timezone) - length).start_of("month" if length < _SHORT else "year")


def _has_months(tiling: Tiling, first: pendulum.DateTime) -> bool:
    """Whether its windows are months of the calendar, or several of them."""
    if isinstance(tiling, Every | Calendar):
        return False
    start = int(first.timestamp())
    return calendar_of(tiling, first.timezone_name or "UTC").following(start) - start > _LONGEST_WEEKS


def _fewest_days(months: int) -> dt.timedelta:
    """The length of the shortest span of so many months: of months, as many end within it, and never one more."""
    starts = [pendulum.date(1896 + number // 12, number % 12 + 1, 1) for number in range(12 * 8)]
    return dt.timedelta(days=min((start.add(months=months) - start).days for start in starts))


def _retention(arguments: dict[str, Any]) -> dt.timedelta | None:
    given = arguments.get("LAST", arguments.get("RETENTION"))
    return None if given is None else _as_time(*given)


def length_of_time(at: Cursor) -> dt.timedelta:
    """Parse a length of time such as `2 HOURS`. Raises SqlError."""
    return _as_time(*_length(at))


def _as_time(number: int, unit: str) -> dt.timedelta:
    return dt.timedelta(days=number * _DAYS[unit]) if unit in _DAYS else dt.timedelta(seconds=number * _SECONDS[unit])


def read_calendar(at: Cursor, name: str, span: Span) -> Calendar:
    """Return the calendar with this name. Raises SqlError at `span`, or at the place of the mistake in its file."""
    file = calendar_file(at.source, name)
    if file is None:
        root = Path(at.source.root)
        names = sorted({path.stem for folder in _folders(at.source) for path in (root / folder).glob(f"[!.]*{ENDING}")})
        at.fail(
            f"there is no calendar {name!r}: no file {name}{ENDING} lies beside this file or in a folder above it."
            f"{nearest(name, names)} It has a window a line: a day, 2026-11-23, or a start and an end, "
            "2026-02-02, 2026-03-02.",
            span,
        )
    try:
        source = source_of((Path(at.source.root) / file).read_bytes(), str(file), at.source.root)
    except OSError as error:
        at.fail(f"calendar {name!r} cannot be read: {file}: {error.strerror}.", span)
    try:
        return Calendar.parse(name, source.text)
    except CalendarError as error:
        raise SqlError(Problem(source, Span(error.offset, error.offset + error.length), str(error))) from None


def calendar_file(source: SourceFile, name: str) -> Path | None:
    """Return the file of a calendar that a SQL file names, relative to the same root; None where there is none."""
    if not re.fullmatch(r"\w+", name):
        return None
    root = Path(source.root)
    return next((path for folder in _folders(source) if (root / (path := folder / f"{name}{ENDING}")).is_file()), None)


def calendar_files(source: SourceFile) -> list[Path]:
    """Return the files of the calendars that a SQL file names, relative to the same root."""
    files = [calendar_file(source, name) for name in _NAMED.findall(source.text)]
    return [file for file in files if file is not None]


def calendar_texts(source: SourceFile) -> str:
    """Return the texts of the calendars that a SQL file names, of which it is compiled; "" where it names none."""
    root = Path(source.root)
    return "\n".join(_text(root / file) for file in calendar_files(source))


def _text(file: Path) -> str:
    """Return the text of a file; "" where it cannot be read, which is a problem of who names it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _folders(source: SourceFile) -> Sequence[Path]:
    """The folder of a file and those above it, up to that to which its path is relative."""
    return Path(source.path).parents
