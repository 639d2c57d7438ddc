"""Readers that never stop, each as programs of others read: what they see is one published state, every time.

Not here: what a state is (model.py).
"""

from __future__ import annotations

import collections
import datetime as dt
import threading
import time
import warnings
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq

from tests.torture.facts import State, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.model import Model, Shown

_CURRENT = """
    select partition, location from varve.current join varve.batch using (dataset, partition, batch_id)
    where dataset = %s
"""
_METADATA = """
    select metadata_location from varve_iceberg.iceberg_tables where table_namespace = 'shop' and table_name = %s
"""
COLUMNS = {"sales": ("product", "cents", "version"), "revenue": ("product", "cents", "version", "code")}
PAUSE_SECONDS = 0.25


@dataclass
class Readers:
    """Threads that read until they are stopped.

    Attributes:
        may_fail: set while a server may be away; only then may a reader fail to get an answer.
        one_state: while a correction runs, and both views were of the same files before it, a statement sees them so.
        one_code: while a promotion runs, and all days had one code before it, a statement sees one code.
        reads: answers that were checked, by kind.
        away: reads that got no answer while a server was away.
        wrong: what was seen that never may.
    """

    url: str
    model: Model
    may_fail: threading.Event = field(default_factory=threading.Event)
    one_state: threading.Event = field(default_factory=threading.Event)
    one_code: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    reads: collections.Counter[str] = field(default_factory=collections.Counter)
    away: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _reading: list[threading.Lock] = field(default_factory=list)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No read is under way as long as the block lasts: what a sweep without any grace would pull away."""
        with ExitStack() as stack:
            for lock in self._reading:
                stack.enter_context(lock)
            yield

    def start(self) -> None:
        kinds = {
            "view": of_the_views, "view twice in a snapshot": of_the_views_twice, "lake": of_the_lake,
            "lake by duckdb": of_the_lake_by_duckdb, "iceberg": of_iceberg, "captured": of_captured,
        }  # fmt: skip
        for kind, looks in kinds.items():
            self._reading.append(threading.Lock())
            given = (kind, looks, self._reading[-1])
            thread = threading.Thread(target=self._run, args=given, name=f"reader of {kind}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(60)

    def one_code_where_it_is_so(self) -> None:
        """From now on, until it is cleared: a statement sees one code, where it does so now."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            codes = {row[3] for rows in view_rows(connection)["totals"].values() for row in rows}
        if len(codes) == 1:
            self.one_code.set()

    def one_state_where_it_is_so(self) -> None:
        """From now on, until it is cleared: a statement sees both views of the same files, where it does so now."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            if not differing(view_rows(connection)):
                self.one_state.set()

    def _run(self, kind: str, looks: Callable[[Readers], list[str]], reading: threading.Lock) -> None:
        while not self.stopped.wait(PAUSE_SECONDS):
            could_fail = self.may_fail.is_set()
            try:
                with reading:
                    problems = looks(self)
            except Exception as error:  # noqa: BLE001 - whatever a reader meets is what is looked for
                if could_fail or self._becomes_away():
                    self.away[kind] += 1
                else:
                    self._note(kind, f"{type(error).__name__}: {error}")
                continue
            self.reads[kind] += 1
            for problem in problems:
                self._note(kind, problem)

    def _becomes_away(self) -> bool:
        """Whether a server went away during a read: its death is noted a moment before it."""
        return self.may_fail.is_set()

    def _note(self, kind: str, problem: str) -> None:
        self.wrong.append(f"{dt.datetime.now(dt.UTC):%H:%M:%S.%f} {kind}: {problem}")

    def checked(self, dataset: str, days: dict[dt.date, Shown], must: set[dt.date]) -> list[str]:
        """What is wrong with all days of a dataset; `must` had to be there before the read began."""
        missing = must - set(days)
        problems = [f"{dataset}: {sorted(map(str, missing))} cannot be seen any more"] if missing else []
        return problems + [
            problem for day, rows in days.items() if (problem := self.model.problem_of(dataset, day, rows)) is not None
        ]

    def must_see(self, dataset: str) -> set[dt.date]:
        """The days that a read that begins now has to see."""
        return set(self.model.shown.get(dataset, ()))


def view_rows(connection: psycopg.Connection[Any]) -> dict[str, dict[dt.date, Shown]]:
    """All of both views, in one statement."""
    rows = connection.execute(
        "select 'totals', day, products::bigint, cents::bigint, version::bigint, code::bigint, null from shop.totals "
        "union all select 'trailing', day, cents::bigint, null, null, null, made_from from shop.trailing"
    ).fetchall()
    found: dict[str, dict[dt.date, Shown]] = {"totals": {}, "trailing": {}}
    for dataset, day, *values in rows:
        row = (values[0], values[4]) if dataset == "trailing" else tuple(values[:4])
        found[dataset].setdefault(day, []).append(row)
    return found


def of_the_views(readers: Readers) -> list[str]:
    must = {dataset: readers.must_see(dataset) for dataset in ("totals", "trailing")}
    if not must["totals"]:
        return []
    one_code, one_state = readers.one_code.is_set(), readers.one_state.is_set()
    with closing(psycopg.connect(readers.url, autocommit=True)) as connection:
        seen = view_rows(connection)
    problems = [problem for dataset in seen for problem in readers.checked(dataset, seen[dataset], must[dataset])]
    codes = {row[3] for rows in seen["totals"].values() for row in rows}
    if one_code and readers.one_code.is_set() and len(codes) > 1:
        problems.append(f"a promotion was seen by half: totals by the codes {sorted(map(str, codes))}")
    if one_state and readers.one_state.is_set():
        problems += [f"a correction was seen by half: {each}" for each in differing(seen)]
    return problems


def differing(seen: dict[str, dict[dt.date, Shown]]) -> list[str]:
    """Where a row of `trailing` is of another file or code of a day than the row of `totals` is."""
    totals = {day: State(int(str(row[2])), int(str(row[3]))) for day, rows in seen["totals"].items() for row in rows}
    return [
        f"trailing {day} is of {each} {state}, and totals of {totals.get(each)}"
        for day, rows in seen["trailing"].items()
        for _, made_from in rows
        for each, state in parts(str(made_from))
        if totals.get(each) != state
    ]


def of_the_views_twice(readers: Readers) -> list[str]:
    must = {dataset: readers.must_see(dataset) for dataset in ("totals", "trailing")}
    if not must["totals"]:
        return []
    with closing(psycopg.connect(readers.url)) as connection:
        connection.execute("set transaction isolation level repeatable read")
        first = view_rows(connection)
        readers.stopped.wait(0.5)
        second = view_rows(connection)
    problems = [] if first == second else [f"one snapshot showed {first!r}, then {second!r}"]
    return problems + [p for dataset in first for p in readers.checked(dataset, first[dataset], must[dataset])]


def lake_folders(connection: psycopg.Connection[Any], dataset: str) -> dict[str, Path]:
    """The current folders by partition."""
    return {path: Path(location) for path, location in connection.execute(_CURRENT, (dataset,)).fetchall()}


def rows_in(folder: Path, columns: tuple[str, ...]) -> Shown:
    """The rows of a folder, read as anybody's parquet."""
    rows = [
        tuple(row[column] for column in columns)
        for file in sorted(folder.glob("*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return sorted(rows)


def day_of(partition: str) -> dt.date:
    """The day of a partition's path."""
    return dt.date.fromisoformat(partition.removeprefix("day="))


def of_the_lake(readers: Readers) -> list[str]:
    problems = []
    with closing(psycopg.connect(readers.url, autocommit=True)) as connection:
        for dataset, columns in COLUMNS.items():
            must = readers.must_see(dataset)
            folders = lake_folders(connection, f"shop.{dataset}")
            days = {day_of(path): rows_in(folder, columns) for path, folder in folders.items()}
            problems += readers.checked(dataset, days, must)
    return problems


def of_the_lake_by_duckdb(readers: Readers) -> list[str]:
    import duckdb

    must = readers.must_see("revenue")
    with closing(psycopg.connect(readers.url, autocommit=True)) as connection:
        folders = lake_folders(connection, "shop.revenue")
    if not folders:
        return []
    days: dict[dt.date, Shown] = {}
    with duckdb.connect() as engine:
        for path, folder in folders.items():
            rows = engine.execute(
                "select product, cents, version, code from read_parquet(?, hive_partitioning = false)",
                [[str(file) for file in folder.glob("*.parquet")]],
            ).fetchall()
            days[day_of(path)] = sorted(rows)
    return readers.checked("revenue", days, must)


def of_iceberg(readers: Readers) -> list[str]:
    """Sales and revenue by the metadata of one statement: one state of both."""
    from pyiceberg.table import StaticTable

    problems = []
    must = {dataset: readers.must_see(dataset) for dataset in COLUMNS}
    with closing(psycopg.connect(readers.url, autocommit=True)) as connection:
        places = {
            dataset: row[0] for dataset in COLUMNS if (row := connection.execute(_METADATA, (dataset,)).fetchone())
        }
    for dataset, place in places.items():
        days: dict[dt.date, Shown] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = StaticTable.from_metadata(place).scan().to_arrow().to_pylist()
        for row in rows:
            days.setdefault(row["day"], []).append(tuple(row[column] for column in COLUMNS[dataset]))
        problems += readers.checked(dataset, {day: sorted(found) for day, found in days.items()}, must[dataset])
    return problems


def of_captured(readers: Readers) -> list[str]:
    """The amounts of a bank add up to nothing after every transaction, so in every published state."""
    problems = []
    with closing(psycopg.connect(readers.url, autocommit=True)) as connection:
        for dataset in ("bank.accounts", "bank.wallets"):
            rows = captured_rows(connection, dataset)
            total = sum(int(str(row[1])) for row in rows)
            if total != 0:
                problems.append(f"{dataset}: {len(rows)} rows add up to {total}, and no transaction leaves that")
            if len({row[0] for row in rows}) != len(rows):
                problems.append(f"{dataset}: a key is there twice")
    return problems


def captured_rows(connection: psycopg.Connection[Any], dataset: str) -> Shown:
    """All rows of a captured dataset, over one state of the catalog."""
    folders = lake_folders(connection, dataset).values()
    return sorted(row for folder in folders for row in rows_in(folder, ("id", "amount", "note")))


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def attempts(seconds: float, pause: float = 1.0) -> Iterator[int]:
    """Numbers from 0 on, a pause between them, until the time is over."""
    deadline, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < deadline:
        yield number
        number += 1
        time.sleep(pause)
