"""Environments as people use them: `varve env` and `varve promote` on a project with files, runs and both stores."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import re
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import psycopg
import pytest
from typer.testing import CliRunner

import varve
from tests.support.dagster_home import make_dagster_home
from varve.catalog.catalog import Catalog
from varve.catalog.environments.dropped import DroppedMeanwhile
from varve.catalog.environments.environments import Environments
from varve.cli.app import app
from varve.cli.batches import keeping
from varve.cli.environments import following, work
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project
from varve.dagster.environments.open_environment import EnvironmentWork, OpenEnvironment
from varve.model.errors import BadInput, VarveError
from varve.project import Project
from varve.services.postgres import connect
from varve.stores.environments.promotion import NotClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varve.services.settings import Settings

pytestmark = pytest.mark.spark


def last_full_days() -> list[dt.date]:
    """Of now: what nobody has stored with the code."""
    today = dt.datetime.now(dt.UTC).date()
    return [today - dt.timedelta(days=number) for number in range(6, 0, -1)]


# Each project has those of its beginning, as a suite may run over midnight.
DAYS = last_full_days()
HEAD = """CREATE DATASET {db}.{name} {columns}
  COMMENT 'For a test.'
  STORED IN {store}
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
{body}
"""
SALES = """CREATE DATASET {db}.sales (product STRING NOT NULL, cents BIGINT NOT NULL)
  COMMENT 'One row per sale.'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = 'sales_{{day:%Y-%m-%d}}.csv');
"""
NAMES = """CREATE DATASET {db}.names (product STRING NOT NULL, label STRING)
  COMMENT 'Without partitions.'
  STORED IN LAKE
EXTERNAL;
"""
LABELS = """CREATE DATASET {db}.labels
  COMMENT 'Without partitions.'
  STORED IN WAREHOUSE
AS SELECT product, label FROM {db}.names;
"""
BEST = """
import pathlib

import varve

REVENUE = varve.sql_datasets(pathlib.Path(__file__).parent)["{db}.revenue"].dataset
BEST = varve.Dataset(
    name="{db}.best", comment="By name.", partitioning=REVENUE.partitioning, store=varve.StoreKind.WAREHOUSE,
    schema=varve.Schema((varve.Column("best", varve.ColumnType("BIGINT"), "cents"),)),
)


@varve.asset(BEST, reads={{"revenue": REVENUE}})
def best(revenue):
    return revenue.selectExpr("cents as best", "day")
"""
REVENUE = "AS SELECT product, SUM(sales.cents) AS cents FROM {db}.sales WHERE sales.day = today{also} GROUP BY product;"
TOTALS = "AS SELECT COUNT(*) AS products, SUM(revenue.cents) AS cents FROM {db}.revenue WHERE revenue.day = today;"
TRAILING = (
    "AS SELECT SUM(revenue.cents) AS cents FROM {db}.revenue "
    "WHERE revenue.day BETWEEN today - INTERVAL 2 DAYS AND today;"
)


@dataclass
class Store:
    """A shop's project: sales by day from files, revenue in the lake, and two views of it in the warehouse."""

    root: Path
    db: str
    settings: Settings

    @property
    def project(self) -> Project:
        return Project.find(self.root)

    def sql(self, name: str, body: str, *, columns: str = "", store: str = "LAKE", also: str = "") -> None:
        text = HEAD.format(
            db=self.db, name=name, columns=columns, store=store, start=DAYS[0], body=body.format(db=self.db, also=also)
        )
        (self.root / f"{self.db}_assets" / f"{name}.sql").write_text(text, encoding="utf-8")
        self.reload()

    def only_dearer_than(self, cents: int | None) -> None:
        """Edit the query of revenue."""
        self.sql("revenue", REVENUE, also="" if cents is None else f" AND sales.cents > {cents}")

    def reload(self) -> None:
        """As a new process finds the files."""
        load_project.cache_clear()
        forget_files()
        for name in [name for name in sys.modules if name.startswith(self.db)]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def send(self, day: dt.date, *sales: tuple[str, int]) -> None:
        folder = self.root / "landing" / self.db / "sales"
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{product},{cents}\n" for product, cents in sales)
        (folder / f"sales_{day}.csv").write_text(f"product,cents\n{lines}", encoding="utf-8")

    def run_due(self) -> list[str]:
        """What the sensors of production ask for."""
        self.reload()
        return [line.removeprefix(f"{self.db}.") for line in varve.run_due(self.project)]

    def varve(self, *words: str) -> str:
        self.reload()
        done = CliRunner().invoke(app, [word.replace("shop.", f"{self.db}.") for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    def json(self, *words: str) -> Any:
        return json.loads(self.varve(*words, "--json"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with connect(self.settings, application="a reader") as connection:
            return connection.execute(query.replace("shop.", f"{self.db}.").encode()).fetchall()

    def totals(self) -> dict[dt.date, int]:
        return dict(self.rows("select day, cents::bigint from shop.totals order by 1"))


@pytest.fixture
def shop_at_rest(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The project, of which nothing was computed, and no environment of an earlier test."""
    DAYS[:] = last_full_days()
    db = f"e{uuid.uuid4().hex[:8]}"
    root = tmp_path / "project"
    (root / f"{db}_assets").mkdir(parents=True)
    (root / f"{db}_assets" / "__init__.py").write_text("")
    (root / "varve.toml").write_text(f'assets = "{db}_assets"\ndefinitions = "{db}_definitions"\n')
    (root / f"{db}_definitions.py").write_text(
        "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n"
    )
    (root / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("VARVE_PROJECT", str(root))
    monkeypatch.setenv("VARVE_LANDING_ROOT", str(root / "landing"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    make_dagster_home(tmp_path / "dagster")
    monkeypatch.syspath_prepend(str(root))
    store = Store(root, db, settings)
    (root / f"{db}_assets" / "sales.sql").write_text(SALES.format(db=db, start=DAYS[0]))
    store.sql("revenue", REVENUE)
    store.sql("totals", TOTALS, store="WAREHOUSE")
    store.sql("trailing", TRAILING, store="WAREHOUSE")
    yield store
    with connect(settings, application="after a test") as connection:
        for environment in Environments(connection).all():
            Environments(connection).forget_views(environment.name)
            Environments(connection).drop(environment.name)


@pytest.fixture
def shop(shop_at_rest: Store) -> Store:
    """The project, computed."""
    return filled(shop_at_rest)


def filled(shop_at_rest: Store) -> Store:
    """Six days up to yesterday, computed by the sensors; each day has a cheap and a dear sale."""
    for number, day in enumerate(DAYS):
        shop_at_rest.send(day, ("pen", 100), ("ink", 200 + number))
    shop_at_rest.run_due()
    assert shop_at_rest.totals() == {day: 300 + number for number, day in enumerate(DAYS)}
    return shop_at_rest


def name_of(shop: Store) -> str:
    return f"n{shop.db[1:]}"


def test_a_code_location_of_an_environment_computes_there_and_has_no_sensors(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, name, key = shop.totals(), name_of(shop), dg.AssetKey([shop.db, "revenue"])
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    monkeypatch.setenv("VARVE_ENVIRONMENT", name)
    shop.reload()
    repository = shop.project.module(shop.project.definitions).defs.get_repository_def()
    assert (repository.sensor_defs, repository.schedule_defs) == ([], [])
    job = repository.get_implicit_job_def_for_assets([key])
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, partition_key=str(DAYS[3]), asset_selection=[key])
        run = instance.get_run_by_id(done.run_id)
        assert run is not None
        assert run.tags["varve/environment"] == name
    monkeypatch.delenv("VARVE_ENVIRONMENT")
    counts = shop.json("env", "show", name)["overlay"][f"{shop.db}.revenue"]
    assert (counts["partitions"], counts["differ"]) == (1, 1)
    assert shop.totals() == before
    monkeypatch.setenv("VARVE_ENVIRONMENT", "nobody")
    with pytest.raises(dg.Failure, match="there is no environment 'nobody'"):
        job.execute_in_process(partition_key=str(DAYS[3]), asset_selection=[key])


# The whole story; the tests below tell its parts, each by itself.
@pytest.mark.slow
def test_a_week_in_an_environment_a_correction_meanwhile_a_promotion_and_the_way_back(
    shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over three levels, with a reader that asks all the while: it sees two states, and both views in the same one."""
    # Remarks stay in one line.
    monkeypatch.setattr(keeping.console, "width", 200)
    before, name = shop.totals(), name_of(shop)
    made = shop.json("env", "create", name)
    assert (made["partitions"], made["bytes_only_here"]) == (0, 0)
    shop.only_dearer_than(150)

    # Only the days that were asked for, and what they read: trailing of a day reads three days of revenue.
    first, last = str(DAYS[3]), str(DAYS[4])
    due = shop.json("env", "run", name, "--from", first, "--to", last, "--dry-run")["due"]
    assert {dataset.split(".")[1]: len(paths) for dataset, paths in due.items()} == {"revenue": 4}
    done = shop.json("env", "run", name, "--from", first, "--to", last)
    assert {dataset.split(".")[1]: count for dataset, count in done["computed"].items()} == {
        "revenue": 4, "totals": 2, "trailing": 2,
    }  # fmt: skip
    assert shop.totals() == before
    counts = shop.json("env", "show", name)["overlay"][f"{shop.db}.totals"]
    assert (counts["partitions"], counts["differ"]) == (2, 2)
    assert f"varve diff DATASET --to env:{name}" in shop.varve("env", "show", name)
    with varve.open(shop.root, env=name) as data:
        (row,) = data.table(f"{shop.db}.totals", where={"day": first}).collect()
        assert (row["products"], row["cents"]) == (1, 203)
    difference = shop.json("diff", "shop.totals", f"day={first}", "--to", f"env:{name}")
    assert not difference["equal"]
    assert [batch["environment"] for batch in shop.json("history", "shop.totals", f"day={first}")] == [name, ""]
    assert f"made in environment {name}, never current" in shop.varve("history", "shop.totals", f"day={first}")
    with pytest.raises(NotClosed, match="would be left behind"):
        shop.varve("promote", name)

    # The rest, and a correction in production by the code that is deployed.
    done = shop.json("env", "run", name)
    assert {dataset.split(".")[1]: count for dataset, count in done["computed"].items()} == {
        "revenue": 2, "totals": 4, "trailing": 4,
    }  # fmt: skip
    shop.only_dearer_than(None)
    shop.send(DAYS[1], ("pen", 100), ("ink", 1_000))
    assert sorted(shop.run_due()) == sorted(
        [f"sales {DAYS[1]}", f"revenue {DAYS[1]}", f"totals {DAYS[1]}", f"trailing {DAYS[1]} ... {DAYS[3]}"]
    )
    corrected = shop.totals()
    shop.only_dearer_than(150)
    with pytest.raises(NotClosed, match="not made from what is current now"):
        shop.varve("promote", name, "--no-run")
    looked_at = shop.json("promote", name, "--dry-run")
    assert [dataset.split(".")[1] for dataset in looked_at["moved"]] == ["revenue"]
    # It is computed first, so that the promotion would be made; where nothing may be computed, it would be refused.
    looked = CliRunner().invoke(app, ["promote", name, "--dry-run"])
    assert looked.exit_code == 0, looked.output
    assert "not made from what is current now, and would be computed first, such as" in " ".join(looked.output.split())
    refused = CliRunner().invoke(app, ["promote", name, "--dry-run", "--no-run"])
    assert refused.exit_code == 3, refused.output
    assert "As it is, it would be refused: of it 1 partition not made from what" in " ".join(refused.output.split())
    assert shop.totals() == corrected

    seen: list[tuple[int, int]] = []
    batches = shop.rows("select count(*) from varve.batch")
    with reader(shop, seen):
        shop.varve("promote", name)
    assert len(set(seen)) == 2, set(seen)
    dearer = {day: 200 + number for number, day in enumerate(DAYS)} | {DAYS[1]: 1_000}
    assert shop.totals() == dearer
    # Computed before the promotion: the corrected day, and what reads it.
    assert shop.rows("select count(*) from varve.batch")[0][0] - batches[0][0] == 5
    assert {batch["environment"] for batch in shop.json("history", "shop.totals", f"day={first}")} == {""}
    assert "nothing that production has not" in shop.varve("promote", name)
    assert shop.run_due() == []

    # The way back, after another correction, which the code before has not seen: it has to be here to compute that.
    shop.send(DAYS[4], ("pen", 100), ("ink", 2_000))
    shop.run_due()
    assert shop.totals() == dearer | {DAYS[4]: 2_000}
    promoted = "select distinct run_id from varve.publish where dataset = 'shop.revenue' and run_id like 'promote-%'"
    ((run,),) = shop.rows(promoted)
    with pytest.raises(VarveError, match=f"varve revert {run}"):
        shop.varve("rollback", "--run", run)
    with pytest.raises(VarveError, match=rf"would be made from has changed \(\w+.revenue day={DAYS[4]}\), "):
        shop.varve("revert", run)
    shop.only_dearer_than(None)
    seen.clear()
    with reader(shop, seen):
        back = shop.json("revert", run[:20])
    assert len(set(seen)) == 2, set(seen)
    assert {dataset.split(".")[1]: count for dataset, count in back["computed"].items()} == {
        "revenue": 1, "totals": 1, "trailing": 2,
    }  # fmt: skip
    assert sum(back["taken"].values()) == 18 - 4
    assert shop.totals() == corrected | {DAYS[4]: 2_100}
    assert shop.run_due() == []
    with pytest.raises(VarveError, match=r"is taken back already: by promotion \d+, .* varve revert \d+"):
        shop.varve("revert", run)


def test_what_a_person_went_back_to_or_accepted_stays_so_in_an_environment(shop: Store) -> None:
    """Else the promotion of a change of something else would undo it."""
    shop.send(DAYS[1], ("pen", 100), ("ink", 1_000))
    shop.run_due()
    former = min(batch["batch_id"] for batch in shop.json("history", "shop.revenue", f"day={DAYS[1]}"))
    shop.varve("rollback", "shop.revenue", f"day={DAYS[1]}", "--to", str(former))
    shop.varve("accept", "shop.trailing")
    assert shop.run_due() == [f"totals {DAYS[1]}"]
    assert shop.totals()[DAYS[1]] == 301
    trailing = shop.rows("select day, cents from shop.trailing order by 1")
    name = name_of(shop)
    shop.varve("env", "create", name)
    done = shop.json("env", "run", name)
    assert (done["computed"], done["taken"]) == ({}, {})
    assert "a person took its batch back" in done["stuck"][f"{shop.db}.revenue"][f"day={DAYS[1]}"]
    told = shop.varve("env", "run", name)
    assert "Nothing was computed." in told
    assert "Nothing differs" not in told
    assert "1 partition not computed" in told

    # A change of its own code is another matter, and so are the newer inputs that follow from that.
    shop.only_dearer_than(150)
    done = shop.json("env", "run", name)
    assert {dataset.split(".")[1]: count for dataset, count in done["computed"].items()} == {
        "revenue": 6, "totals": 6, "trailing": 6,
    }  # fmt: skip
    assert done["stuck"] == {}
    assert shop.totals()[DAYS[1]] == 301
    assert shop.rows("select day, cents from shop.trailing order by 1") == trailing
    shop.varve("promote", name)
    assert shop.totals()[DAYS[1]] == 1_000


def test_with_only_what_is_consistent_what_production_has_moved_is_computed_too_and_what_is_no_key_stays(
    shop: Store,
) -> None:
    name = name_of(shop)
    shop.json("env", "create", name)
    shop.only_dearer_than(150)
    shop.json("env", "run", name)
    shop.only_dearer_than(None)
    shop.send(DAYS[1], ("pen", 100), ("ink", 1_000))
    shop.run_due()
    shop.only_dearer_than(150)
    # Its first day is none of the series any more: readers keep it as it is until it is retired.
    revenue = shop.root / f"{shop.db}_assets" / "revenue.sql"
    revenue.write_text(revenue.read_text().replace(f"START '{DAYS[0]}'", f"START '{DAYS[1]}'"))
    promoted = shop.json("promote", name, "--only-consistent")
    assert set(promoted["partitions"][f"{shop.db}.revenue"]) == {f"day={day}" for day in DAYS[1:]}
    assert shop.totals()[DAYS[1]] == 1_000
    assert shop.totals()[DAYS[2]] == 202


def test_a_promotion_is_applied_by_its_number_and_taken_back_without_the_code_before(shop: Store) -> None:
    """Nothing was corrected meanwhile: all batches of the code before are kept, and it need not be checked out."""
    before, name = shop.totals(), name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    (shop.root / f"{shop.db}_assets" / "trailing.sql").unlink()
    shop.varve("env", "run", name)
    (changed,) = [each for each in shop.json("plan")["changes"]["datasets"] if each["kind"] == "changed"]
    assert (len(changed["kept"]["partitions"]), changed["kept"]["environments"]) == (6, [name])
    said = " ".join(shop.varve("plan").split())
    assert "a new environment takes them (varve env create, env run), and promoting it computes nothing" in said
    of_code = re.search(r"Plan (\d+)\.", said)
    assert of_code
    with pytest.raises(VarveError, match=rf"plan {of_code[1]} was not applied; it promoted nothing"):
        shop.varve("revert", of_code[1])
    number = shop.json("promote", name, "--dry-run")["number"]
    assert f"varve apply {number} promotes exactly this" in shop.varve("promote", name, "--dry-run")
    with pytest.raises(BadInput, match="as a whole"):
        shop.varve("apply", str(number), "--rebuild")
    batches = shop.rows("select count(*) from varve.batch")
    output = shop.varve("apply", str(number))
    assert f"varve drop {shop.db}.trailing" in " ".join(output.split())
    assert shop.totals() == {day: 200 + place for place, day in enumerate(DAYS)}
    with pytest.raises(VarveError, match=f"was applied at .*varve revert {number}"):
        shop.varve("apply", str(number))
    output = " ".join(shop.varve("revert", str(number)).split())
    assert "12 partitions taken as they were kept, 0 computed" in output
    assert "The code here is another one" in output
    assert shop.totals() == before
    assert shop.rows("select count(*) from varve.batch") == batches
    assert [each["name"] for each in shop.json("env", "list")] == [name]
    with pytest.raises(VarveError, match="is not a promotion that was made"):
        shop.varve("revert", "99999")


def test_a_live_environment_is_kept_at_what_production_has(shop: Store) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    with pytest.raises(BadInput, match="stands on a publish of production"):
        shop.varve("env", "run", name, "--follow")
    shop.varve("env", "drop", name)
    shop.varve("env", "create", name, "--live")
    shop.only_dearer_than(150)
    rounds: list[dict[str, int]] = []

    def go_on() -> bool:
        """A file is corrected between two rounds; production waits for a decision about the query."""
        rounds.append(dict(done.computed))
        if len(rounds) == 1:
            shop.send(DAYS[0], ("pen", 100), ("ink", 9_000))
            shop.run_due()
        return len(rounds) < 2

    done = EnvironmentWork()
    followed = following.follow(
        None, name, [f"{shop.db}.totals"], first=None, last=None, effects=False, go_on=go_on, stopped=lambda: False,
        done=done,
    )  # fmt: skip
    assert followed.computed == {f"{shop.db}.revenue": 7, f"{shop.db}.totals": 7}
    assert rounds[0] == {f"{shop.db}.revenue": 6, f"{shop.db}.totals": 6}
    with varve.open(shop.root, env=name) as data:
        (row,) = data.table(f"{shop.db}.totals", where={"day": str(DAYS[0])}).collect()
        assert row["cents"] == 9_000
    assert shop.totals()[DAYS[0]] == 300


def test_the_first_ctrl_c_lets_a_run_end_and_the_second_one_does_not() -> None:
    with following.until_ctrl_c(seconds=60) as (go_on, stopped):
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        assert not go_on()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_plan_that_is_not_what_would_be_promoted_any_more_is_refused(shop: Store) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    # One that was computed in part would leave the rest behind, and has no number.
    shop.varve("env", "run", name, "--from", str(DAYS[3]), "--to", str(DAYS[3]))
    looked = " ".join(shop.varve("promote", name, "--dry-run").split())
    assert re.search(r"As it is, it would be refused: .* of production would be left behind ", looked)
    assert f"compute them in the environment too (varve env run {name})" in looked
    assert "promotes exactly this" not in looked
    shop.varve("env", "run", name)
    number = shop.json("promote", name, "--dry-run")["number"]
    shop.only_dearer_than(201)
    shop.varve("env", "run", name)
    with pytest.raises(VarveError, match=f"plan {number} is not what would be promoted"):
        shop.varve("apply", str(number))


class reader:  # noqa: N801 - used like a function
    """Ask both views in one statement, again and again, until the block ends."""

    def __init__(self, shop: Store, seen: list[tuple[int, int]]) -> None:
        totals, trailing = f"{shop.db}.totals", f"{shop.db}.trailing"
        self.query = f"select (select sum(cents) from {totals})::bigint, (select sum(cents) from {trailing})::bigint"
        self.settings, self.seen, self.stop = shop.settings, seen, threading.Event()
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._ask) for _ in range(3)]

    def _ask(self) -> None:
        try:
            with connect(self.settings, application="a reader") as connection:
                while not self.stop.is_set():
                    self.seen.append(connection.execute(self.query.encode()).fetchall()[0])
        except BaseException as error:  # noqa: BLE001 - asserted at the end
            self.errors.append(error)

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + 30
        while not self.seen:
            assert time.monotonic() < deadline, self.errors

    def __exit__(self, *_: object) -> None:
        # Some answers after the change.
        count = len(self.seen)
        deadline = time.monotonic() + 30
        while len(self.seen) < count + 10:
            assert time.monotonic() < deadline, self.errors
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=30)
        assert self.errors == []


def test_what_readers_have_on_a_view_survives_a_promotion(shop: Store) -> None:
    """A dashboard's view, a grant, and a prepared statement."""
    name, role = name_of(shop), f"bi_{shop.db}"
    with connect(shop.settings, application="a dashboard") as dashboard:
        dashboard.execute(f"create view public.{role} as select max(cents) as most from {shop.db}.totals".encode())
        dashboard.execute(f"create role {role}".encode())
        dashboard.execute(f"grant select on {shop.db}.totals to {role}".encode())
        question = f"select sum(cents)::bigint from {shop.db}.totals".encode()
        before = dashboard.execute(question, prepare=True).fetchone()
        shop.varve("env", "create", name)
        shop.only_dearer_than(150)
        shop.varve("env", "run", name)
        shop.varve("promote", name)
        assert dashboard.execute(question, prepare=True).fetchone() != before
        assert dashboard.execute(f"select most from public.{role}".encode()).fetchone() == (205,)
        granted = f"select has_table_privilege('{role}', '{shop.db}.totals', 'select')".encode()
        assert dashboard.execute(granted).fetchone() == (True,)
        dashboard.execute(f"drop view public.{role}".encode())
        dashboard.execute(f"drop owned by {role}".encode())
        dashboard.execute(f"drop role {role}".encode())


def test_a_new_column_and_a_new_dataset_are_promoted_with_their_declarations(shop: Store) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.sql(
        "totals", TOTALS.replace("AS cents FROM", "AS cents, MAX(revenue.cents) AS dearest FROM"), store="WAREHOUSE"
    )
    shop.sql("best", "AS SELECT MAX(totals.dearest) AS dearest FROM {db}.totals WHERE totals.day = today;")
    done = shop.json("env", "run", name)
    assert {dataset.split(".")[1]: count for dataset, count in done["computed"].items()} == {"totals": 6, "best": 6}
    with pytest.raises(psycopg.errors.UndefinedColumn):
        shop.rows("select dearest from shop.totals")
    shop.varve("promote", name)
    assert shop.rows("select dearest from shop.totals order by day limit 1") == [(200,)]
    assert shop.run_due() == []
    with connect(shop.settings, application="a look") as connection:
        assert len(Catalog(connection).current(f"{shop.db}.best")) == 6
    # What has replaced no code cannot be taken back by the code before.
    name = f"more_{name}"
    shop.varve("env", "create", name)
    shop.sql("least", "AS SELECT MIN(totals.cents) AS least FROM {db}.totals WHERE totals.day = today;")
    shop.varve("env", "run", name)
    promoted = " ".join(shop.varve("promote", name).split())
    assert f"stays until its declaration is gone here, and: varve drop {shop.db}.least" in promoted
    run = shop.rows(f"select run_id from varve.publish where dataset = '{shop.db}.least'")[-1][0]
    with pytest.raises(
        VarveError, match=rf"has replaced no code: it added {shop.db}.least.* varve drop {shop.db}.least"
    ):
        shop.varve("revert", run)
    (shop.root / f"{shop.db}_assets" / "least.sql").unlink()
    shop.varve("drop", "shop.least")
    with connect(shop.settings, application="a look") as connection:
        assert Catalog(connection).current(f"{shop.db}.least") == {}


def test_a_project_with_an_error_is_not_computed(shop: Store) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.sql("totals", "AS SELECT nothing FROM {db}.revenue WHERE revenue.day = today;", store="WAREHOUSE")
    with pytest.raises(VarveError, match="1 dataset of the project cannot be used as written"):
        shop.varve("env", "run", name)


def test_rows_that_arrive_are_read_in_production_only(shop: Store) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.send(DAYS[0], ("pen", 7))
    assert shop.json("env", "run", name)["computed"] == {}
    with pytest.raises(VarveError, match="there is no dataset"):
        shop.varve("env", "run", name, "shop.nothing")
    with pytest.raises(VarveError, match=rf"{shop.db}.revenue and {shop.db}.totals have no partition like that"):
        shop.varve("env", "run", name, "shop.totals", "shop.revenue", "day=2062-01-01")
    shop.run_due()
    shop.varve("env", "rebase", name)
    assert shop.json("env", "run", name)["computed"] == {}
    assert shop.totals()[DAYS[0]] == 7
    # Revenue by product is another one then, and what reads only its cents is not computed again.
    shop.send(DAYS[0], ("ink", 7))
    assert sorted(shop.run_due()) == [f"revenue {DAYS[0]}", f"sales {DAYS[0]}"]
    why = shop.json("why", "shop.totals", f"day={DAYS[0]}")
    assert why["reason"] == f"spared: nothing that it reads of {shop.db}.revenue day={DAYS[0]} has changed"
    shop.send(DAYS[0], ("ink", 8))
    assert len(shop.run_due()) == 4
    assert shop.totals()[DAYS[0]] == 8


def test_a_correction_is_tried_before_it_is_sent_and_then_taken_over(shop: Store, tmp_path: Path) -> None:
    name, before = name_of(shop), shop.totals()
    corrected = tmp_path / "corrected.csv"
    corrected.write_text("product,cents\npen,100\nink,9000\n")
    shop.varve("env", "create", name)
    assert "is of" in shop.varve("env", "land", name, "shop.sales", str(corrected), f"day={DAYS[0]}")
    done = shop.json("env", "run", name)
    assert {dataset.split(".")[1]: count for dataset, count in done["computed"].items()} == {
        "revenue": 1, "totals": 1, "trailing": 3,
    }  # fmt: skip
    assert shop.totals() == before
    with varve.open(shop.root, env=name) as data:
        (row,) = data.table(f"{shop.db}.totals", where={"day": str(DAYS[0])}).collect()
        assert row["cents"] == 9_100
    batches = shop.rows("select count(*) from varve.batch")
    shop.send(DAYS[0], ("pen", 100), ("ink", 9_000))
    shop.run_due()
    assert shop.totals() == before | {DAYS[0]: 9_100}
    # It was read again, and nothing of what follows was computed again.
    assert shop.rows("select count(*) from varve.batch")[0][0] - batches[0][0] <= 1


def test_a_file_of_a_dataset_without_partitions_is_tried_and_corrected(shop_at_rest: Store, tmp_path: Path) -> None:
    shop, name = shop_at_rest, name_of(shop_at_rest)
    (shop.root / f"{shop.db}_assets" / "names.sql").write_text(NAMES.format(db=shop.db))
    (shop.root / f"{shop.db}_assets" / "labels.sql").write_text(LABELS.format(db=shop.db))
    landed = shop.root / "landing" / shop.db / "names"
    landed.mkdir(parents=True)
    (landed / "all.csv").write_text("product,label\npen,Pen\n")
    shop.run_due()
    labels = "select label from shop.labels order by 1"
    assert shop.rows(labels) == [("Pen",)]
    corrected = tmp_path / "fixed.csv"
    corrected.write_text("product,label\npen,Blue pen\nink,Ink\n")
    shop.varve("env", "create", name)
    assert "names all is of" in shop.varve("env", "land", name, "shop.names", str(corrected))
    assert shop.json("env", "run", name)["computed"] == {f"{shop.db}.labels": 1}
    assert shop.rows(labels) == [("Pen",)]
    shop.varve("env", "drop", name)
    run = shop.json("correct", "shop.names", str(corrected))["run"]
    assert shop.rows(labels) == [("Blue pen",), ("Ink",)]
    assert (landed / "all.csv").read_text() == corrected.read_text()
    assert shop.run_due() == []
    shop.varve("rollback", "--run", run)
    assert shop.rows(labels) == [("Pen",)]
    shop.varve("env", "create", name)
    with pytest.raises(BadInput, match="has no partitions; leave day=2026-11-01 out"):
        shop.varve("env", "land", name, "shop.names", str(corrected), "day=2026-11-01")


def test_a_file_of_a_partition_of_several_is_refused(shop_at_rest: Store, tmp_path: Path) -> None:
    """It would not be sent with a promotion, which would then be refused for ever."""
    shop, file = shop_at_rest, tmp_path / "sent.csv"
    file.write_text("product,cents\npen,100\n")
    sales = shop.root / f"{shop.db}_assets" / "sales.sql"
    sales.write_text(sales.read_text().replace("sales_{day:%Y-%m-%d}.csv", "day={day:%Y-%m-%d}/*.csv"))
    shop.varve("env", "create", name_of(shop))
    with pytest.raises(BadInput, match=r"may have several files, so that no file can take .* Nothing was read"):
        shop.varve("env", "land", name_of(shop), "shop.sales", str(file), f"day={DAYS[0]}")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["shop.totals", "{file}", "day=2026-01-01"], "it has no landing files"),
        (["shop.sales", "{file}", "store=Paris"], "a file is of one partition; name it: day=..."),
        (["shop.sales", "{file}", "today"], "write column=value"),
        (["shop.sals", "{file}", "day=2026-01-01"], "there is no dataset"),
        (["shop.sales", "{file}", "day=tomorrow"], "tomorrow"),
    ],
)
def test_a_file_that_is_of_no_partition_is_refused(
    shop_at_rest: Store, tmp_path: Path, words: list[str], problem: str
) -> None:
    file = tmp_path / "sent.csv"
    file.write_text("product,cents\npen,100\n")
    shop_at_rest.varve("env", "create", name_of(shop_at_rest))
    with pytest.raises(VarveError, match=problem):
        shop_at_rest.varve("env", "land", name_of(shop_at_rest), *[word.format(file=file) for word in words])


def test_a_role_reads_an_environment_and_keeps_that_right_when_its_views_are_made_again(shop_at_rest: Store) -> None:
    shop, name = shop_at_rest, name_of(shop_at_rest)
    analysts, auditor = f"analysts_{shop.db}", f'Aud"it {shop.db}'
    view = f"{shop.db}__{name}.totals"
    may = (
        f"select has_table_privilege(%s, '{view}', 'select') and has_schema_privilege(%s, '{shop.db}__{name}', 'usage')"
    )
    shop.varve("env", "create", name)
    with connect(shop.settings, application="an administrator") as administrator:

        def readers() -> list[bool]:
            return [administrator.execute(may, (role, role)).fetchone() == (True,) for role in (analysts, auditor)]  # type: ignore[arg-type]

        administrator.execute(f"create role {analysts}".encode())
        with pytest.raises(VarveError, match=f"the server has no role no_{analysts}.* Did you mean {analysts}"):
            shop.varve("env", "views", name, "--role", analysts, "--role", f"no_{analysts}")
        assert shop.rows(f"select 1 from pg_namespace where nspname = '{shop.db}__{name}'") == []
        quoted = auditor.replace('"', '""')
        administrator.execute(f'create role "{quoted}"'.encode())
        shop.varve("env", "views", name, "--role", analysts)
        assert readers() == [True, False]
        shop.varve("env", "views", name, "--role", auditor)
        shop.varve("env", "views", name)
        assert readers() == [True, True]
        shop.varve("env", "drop", name)
        for role in (analysts, quoted):
            administrator.execute(f'drop role "{role}"'.encode())


def test_views_of_others_stay_and_no_sweep_ends_at_them(shop_at_rest: Store) -> None:
    shop, name = shop_at_rest, name_of(shop_at_rest)
    schema = f"{shop.db}__{name}"
    shop.varve("env", "create", name, "--ttl", "1s")
    shop.varve("env", "create", f"x{name}")
    with connect(shop.settings, application="somebody") as somebody:
        for statement in (
            f"create schema {schema}",
            f"create view {schema}.totals as select 'mine' as whose",
            f"create table {schema}.trailing as select 1 as mine",
        ):
            somebody.execute(statement.encode())
        with pytest.raises(BadInput, match=rf"{schema}.totals, {schema}.trailing. Nothing was made or replaced"):
            shop.varve("env", "views", name)
        assert shop.rows(f"select whose from {schema}.totals") == [("mine",)]
        assert shop.rows(f"select count(*) from varve.environment_view where environment = '{name}'") == [(0,)]
        somebody.execute(f"drop view {schema}.totals; drop table {schema}.trailing".encode())
        shop.varve("env", "views", name)
        # Another environment would be shown under the same name, and somebody has put a table in the place of a view.
        shop.rows(f"update varve.environment_view set environment = 'x{name}' where environment = '{name}' returning 1")
        with pytest.raises(BadInput, match=rf"{schema}.\w+ of environment x{name}"):
            shop.varve("env", "views", name)
        shop.rows(f"update varve.environment_view set environment = '{name}' where environment = 'x{name}' returning 1")
        somebody.execute(f"drop view {schema}.trailing; create table {schema}.trailing as select 1 as mine".encode())
        somebody.execute(f"create view public.v{name} as select * from {schema}.totals".encode())
        time.sleep(1.1)
        would = shop.json("sweep", "--dry-run")
        assert name in would["expired_environments"]
        swept = shop.json("sweep")
        assert name not in swept["expired_environments"]
        assert any(f"environment {name}" in problem and f"v{name}" in problem for problem in swept["problems"])
        somebody.execute(f"drop view public.v{name}".encode())
        assert name in shop.json("sweep")["expired_environments"]
        assert shop.rows(f"select mine from {schema}.trailing") == [(1,)]
        somebody.execute(f"drop schema {schema} cascade".encode())


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_where_a_column_goes_that_nobody_reads_no_reader_is_computed(shop_at_rest: Store, store: str) -> None:
    shop_at_rest.sql("revenue", REVENUE, store=store)
    shop = filled(shop_at_rest)
    before, name = shop.totals(), name_of(shop)
    shop.varve("env", "create", name)
    shop.sql("revenue", REVENUE.replace("SELECT product, ", "SELECT "), store=store)
    computed = shop.json("env", "run", name)["computed"]
    assert computed == {f"{shop.db}.revenue": len(DAYS)}
    promoted = shop.json("promote", name)["partitions"]
    assert {dataset: len(paths) for dataset, paths in promoted.items()} == computed
    assert (shop.totals(), shop.run_due()) == (before, [])


def test_a_rebuild_by_other_code_that_comes_to_the_same_spares_its_readers(shop: Store) -> None:
    """In production, with no environment: the rows of both codes are compared, of all days in one run."""
    before = shop.totals()
    shop.sql("revenue", REVENUE.replace("SUM(sales.cents)", "SUM(sales.cents) + 0"))
    plan = shop.json("plan")["changes"]["number"]
    shop.varve("apply", str(plan), "--rebuild")
    assert shop.run_due() == [f"revenue {DAYS[0]} ... {DAYS[-1]}"]
    assert (shop.totals(), shop.run_due()) == (before, [])


def test_whoever_reads_all_columns_is_computed_where_two_of_them_change_names(shop_at_rest: Store) -> None:
    """The values stay where they are, row by row; a function that reads a column by its name gets others."""
    shop = shop_at_rest
    both = "AS SELECT MIN(cents) AS {}, MAX(cents) AS {} FROM {{db}}.sales WHERE sales.day = today;"
    shop.sql("revenue", both.format("cents", "wrong"))
    (shop.root / f"{shop.db}_assets" / "best.py").write_text(BEST.format(db=shop.db, start=DAYS[0]))
    for name in ("totals", "trailing"):
        (shop.root / f"{shop.db}_assets" / f"{name}.sql").unlink()
    # A run of one day hashes its rows while it writes them.
    shop.send(DAYS[0], ("pen", 100), ("ink", 200))
    shop.run_due()
    best = "select distinct best::bigint from shop.best"
    assert shop.rows(best) == [(100,)]
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.sql("revenue", both.format("wrong", "cents"))
    assert shop.json("env", "run", name)["computed"] == {f"{shop.db}.revenue": 1, f"{shop.db}.best": 1}
    shop.varve("promote", name)
    assert shop.rows(best) == [(200,)]


@pytest.mark.parametrize("hashing", ["single", "never"])
def test_what_is_equal_in_an_environment_is_known_unless_nothing_is_hashed(
    shop: Store, monkeypatch: pytest.MonkeyPatch, hashing: str
) -> None:
    monkeypatch.setenv("VARVE_CONTENT_HASH", hashing)
    name = name_of(shop)
    shop.varve("env", "create", name)
    # The pen costs 100, so that this is another query with the same rows.
    shop.only_dearer_than(99)
    computed = shop.json("env", "run", name)["computed"]
    readers = {} if hashing == "single" else {f"{shop.db}.totals": len(DAYS), f"{shop.db}.trailing": len(DAYS)}
    assert computed == {f"{shop.db}.revenue": len(DAYS), **readers}
    counts = shop.json("env", "show", name)["overlay"][f"{shop.db}.revenue"]
    assert counts["differ"] == (0 if hashing == "single" else len(DAYS)), counts


@pytest.mark.parametrize("moment", ["plan", "_execute"])
@pytest.mark.parametrize("command", ["env run", "correct"])
def test_what_works_in_an_environment_that_is_dropped_meanwhile_says_so(
    shop: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, moment: str
) -> None:
    name, before, original = name_of(shop), shop.totals(), getattr(OpenEnvironment, moment)
    shop.varve("env", "create", name)
    words = ["env", "run", name]
    if command == "correct":
        (tmp_path / f"sales_{DAYS[0]}.csv").write_text("product,cents\npen,1\n")
        words = ["correct", "shop.sales", str(tmp_path / f"sales_{DAYS[0]}.csv")]
    else:
        shop.only_dearer_than(150)

    def dropped(environment: OpenEnvironment, *given: Any, **named: Any) -> Any:
        with suppress(VarveError):
            work.drop(environment.name)
        return original(environment, *given, **named)

    monkeypatch.setattr(OpenEnvironment, moment, dropped)
    with pytest.raises(DroppedMeanwhile, match=r"environment \w+ was dropped while this command worked in it") as told:
        shop.varve(*words)
    assert "varve env run" not in str(told.value)
    assert shop.totals() == before
    assert [each["name"] for each in shop.json("env", "list")] == ([] if command == "env run" else [name])


def about(landing: Path, shop: Store) -> dict[str, str]:
    """What the doctor says of the landing folder, with what to do; other tests have the same catalog."""
    findings = [finding for finding in shop.json("doctor")["findings"] if str(landing) in finding["problem"]]
    return {finding["problem"]: finding["remedy"] for finding in findings}


def test_the_doctor_names_files_that_no_dataset_reads(shop_at_rest: Store) -> None:
    shop = shop_at_rest
    landing = shop.root / "landing"
    assert about(landing, shop) == {}
    for folder in (f"{shop.db}/sale", f"{shop.db}/revenue", f"{shop.db}/sales"):
        (landing / folder).mkdir(parents=True)
        (landing / folder / "notes.csv").write_text("product,cents\n")
    shop.sql("broken", "AS SELECT nothing FROM {db}.sales;")
    # Files of others that a dataset reads as a table are read, too.
    table = f"EXTERNAL OPTIONS (source = 'parquet', folder = '{landing}/of_others/prices');"
    shop.sql("prices", table, columns="(product STRING, cents BIGINT)")
    for folder in (f"{shop.db}/broken", "of_others/prices"):
        (landing / folder).mkdir(parents=True)
        (landing / folder / "notes.csv").write_text("product,cents\n")
    found = about(landing, shop)
    assert found == {
        f"{landing}/{shop.db}/sale has files, and no dataset of this project reads them":
            f"Those of {shop.db}.sales are read in {landing}/{shop.db}/sales.",
        f"{landing}/{shop.db}/revenue has files, and {shop.db}.revenue takes no files that arrive":
            "Move them to the dataset that is to take them, or away.",
    }  # fmt: skip


def test_environments_are_listed_and_forgotten(shop: Store) -> None:
    name = name_of(shop)
    for reserved, command in (("revert_9", "revert"), ("evolve_shop_sales", "evolve"), ("correction_1", "correct")):
        with pytest.raises(BadInput, match=f"'{reserved}': environments .* made by `varve {command}`"):
            shop.varve("env", "create", reserved)
    shop.varve("env", "create", name, "--ttl", "3d")
    shop.only_dearer_than(150)
    shop.varve("env", "run", name, "shop.totals", f"day={DAYS[0]}")
    (listed,) = [each for each in shop.json("env", "list") if each["name"] == name]
    assert (listed["datasets"], listed["partitions"], listed["ttl_seconds"]) == (2, 2, 3 * 86_400)
    assert listed["bytes_only_here"] > 0
    shown = shop.json("env", "views", name)
    assert sorted(shown) == [f"{shop.db}__{name}.{table}" for table in ("revenue", "sales", "totals", "trailing")]
    here = shop.rows(f"select day, cents::bigint from shop.totals where day > '{DAYS[0]}' order by 1")
    there = f"select day, cents::bigint from {shop.db}__{name}.totals order by 1"
    assert shop.rows(there) == [(DAYS[0], 200), *here]
    with varve.open(shop.root) as data:
        spark = data.table(f"{shop.db}.revenue").sparkSession
    in_hive = f"SELECT SUM(cents) FROM `{shop.db}__{name}`.revenue WHERE day = '{DAYS[0]}'"
    assert spark.sql(in_hive).collect()[0][0] == 200
    # It is as it was when the views were made, until they are made again.
    shop.varve("env", "run", name)
    assert shop.rows(there) == [(DAYS[0], 200), *here]
    shop.varve("env", "views", name)
    assert [cents for _, cents in shop.rows(there)] == [200 + number for number in range(6)]
    with connect(shop.settings, application="a dashboard") as dashboard:
        dashboard.execute(f"create view public.d{name} as select * from {shop.db}__{name}.totals".encode())
        with pytest.raises(VarveError, match=f"view d{name} depends on view"):
            shop.varve("env", "drop", name)
        dashboard.execute(f"drop view public.d{name}".encode())
    assert "is forgotten, with 18 partitions" in shop.varve("env", "drop", name)
    assert shop.rows(f"select 1 from pg_namespace where nspname = '{shop.db}__{name}'") == []
    assert not spark.catalog.databaseExists(f"{shop.db}__{name}")
    assert len(shop.totals()) == 6
    with pytest.raises(VarveError, match="there is no environment"):
        shop.varve("env", "show", name)
