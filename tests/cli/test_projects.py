"""Several projects over one catalog: each computes its own datasets, and reads those of the others by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.test_environments import DAYS, HEAD, REVENUE, Store, shop_at_rest  # noqa: F401 - a fixture
from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import PublishedDataset
from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.cli.files import of_project
from varve.dagster.discovery import load_project
from varve.model.errors import OtherOwner, VarveError
from varve.services.postgres import connect
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from varve.services.settings import Settings

pytestmark = pytest.mark.spark

BEST = "AS SELECT MAX(revenue.cents) AS cents FROM shop.revenue WHERE revenue.day = today;"
DEFINITIONS = "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__))\n"


class Team(Store):
    """A project with a name, in a folder of its own, over the catalog that the tests share."""

    def varve(self, *words: str) -> str:
        return super().varve("--project", str(self.root), *words)

    def declare(self, name: str, body: str, *, db: str = "", columns: str = "", store: str = "LAKE") -> None:
        """Write the file of a dataset; `shop.` is the database of the team, or `db`."""
        database = db or self.db
        text = HEAD.format(db=database, name=name, columns=columns, store=store, start=DAYS[0], body=body)
        self.file(f"{database}_{name}").write_text(text.replace("shop.", f"{OF[self.db]}."), encoding="utf-8")
        self.reload()

    def file(self, name: str) -> Path:
        return self.root / f"{self.db}_assets" / f"{name}.sql"


# The database that each team calls shop.
OF: dict[str, str] = {}


@pytest.fixture
def shop(
    shop_at_rest: Store,  # noqa: F811
    fresh_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Team:
    """The project that computes revenue in the lake and totals in the warehouse, of two days."""
    with connect(shop_at_rest.settings, application="before a test") as connection:
        Catalog(connection).ensure_schema()
    # A catalog and a lake in which nobody else has datasets.
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_LAKE_ROOT", str(tmp_path / "lake"))
    with (shop_at_rest.root / "varve.toml").open("a") as file:
        file.write(f'[settings]\nproject_name = "{shop_at_rest.db}"\n')
    team = Team(shop_at_rest.root, shop_at_rest.db, shop_at_rest.project.settings)
    OF[team.db] = team.db
    for day in DAYS[:2]:
        team.send(day, ("pen", 100), ("ink", 250))
    team.run_due()
    return team


@pytest.fixture
def bureau(shop: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A second project, with the best revenue of each day, which it reads of the shop."""
    db = f"b{shop.db[1:]}"
    root = tmp_path / "bureau"
    (root / f"{db}_assets").mkdir(parents=True)
    (root / f"{db}_assets" / "__init__.py").write_text("")
    (root / "varve.toml").write_text(
        f'assets = "{db}_assets"\ndefinitions = "{db}_definitions"\n[settings]\nproject_name = "{db}"\n'
    )
    (root / f"{db}_definitions.py").write_text(DEFINITIONS)
    monkeypatch.syspath_prepend(str(root))
    team = Team(root, db, shop.settings)
    OF[db] = shop.db
    assert "is declared in" in team.varve("import", f"{shop.db}.revenue")
    team.declare("best", BEST, store="WAREHOUSE")
    return team


def best(team: Team) -> dict[dt.date, int]:
    return dict(team.rows(f"select day, cents::bigint from {team.db}.best order by 1"))


def well(team: Team) -> bool:
    return "All is well" in team.varve("doctor")


def findings(team: Team) -> list[tuple[str, str]]:
    return [(found["dataset"], found["problem"]) for found in team.json("doctor")["findings"]]


def test_a_project_reads_what_another_computes_by_partition(shop: Team, bureau: Team) -> None:
    graph = load_project(bureau.project).graph
    foreign = graph.datasets[f"{shop.db}.revenue"]
    assert (graph.project, graph.own) == (bureau.db, [f"{bureau.db}.best"])
    assert (foreign.of_project, foreign.arrives, foreign.is_computed) == (shop.db, False, False)
    text = bureau.file(f"{shop.db}_revenue").read_text()
    assert f"source = 'project', project = '{shop.db}'" in text
    assert "PARTITIONED BY (day DATE)" in text
    assert bureau.run_due() == [f"best {DAYS[0]} ... {DAYS[1]}"]
    assert best(bureau) == {DAYS[0]: 250, DAYS[1]: 250}
    # Exactly the day that changed, and the day that came.
    shop.send(DAYS[0], ("pen", 100), ("ink", 900))
    shop.send(DAYS[2], ("pen", 700))
    assert bureau.run_due() == []
    shop.run_due()
    assert sorted(bureau.run_due()) == [f"best {DAYS[0]}", f"best {DAYS[2]}"]
    assert best(bureau) == {DAYS[0]: 900, DAYS[1]: 250, DAYS[2]: 700}
    # Neither misses what the other declares.
    assert well(shop)
    assert well(bureau)
    assert [change["kind"] for team in (shop, bureau) for change in team.json("plan")["changes"]["datasets"]] == []
    owners = {each["dataset"]: each["project"] for each in bureau.json("own")}
    assert owners == {
        **{f"{shop.db}.{name}": shop.db for name in ("sales", "revenue", "totals", "trailing")},
        f"{bureau.db}.best": bureau.db,
    }
    state = bureau.json("why", f"{shop.db}.revenue", f"day={DAYS[0]}")
    assert (state["state"], state["reason"]) == ("current", f"computed by project {shop.db}")


def test_what_belongs_to_another_project_is_not_changed(shop: Team, bureau: Team) -> None:
    bureau.run_due()
    shop.send(DAYS[0], ("pen", 100), ("ink", 900))
    shop.run_due()
    history = shop.json("history", f"{shop.db}.revenue")
    first = str(min(batch["batch_id"] for batch in history if batch["partition"] == f"day={DAYS[0]}"))
    revenue, day = f"{shop.db}.revenue", f"day={DAYS[0]}"
    for words in (
        ["backfill", "start", revenue, day],
        ["rollback", revenue, day, "--to", first],
        ["accept", revenue, day, "--reason", "a test"],
        ["evolve", revenue],
        ["retire", revenue],
        ["correct", revenue, "any.csv", day],
        ["sweep", revenue, "--older-than", "0s"],
    ):
        with pytest.raises(VarveError, match=f"(declared as a dataset of|belongs to) project {shop.db}"):
            bureau.varve(*words)
    # Not even where nothing is declared of it.
    bureau.file(f"{shop.db}_revenue").unlink()
    bureau.file(f"{bureau.db}_best").unlink()
    bureau.reload()
    for words in (["drop", revenue], ["drop", f"{shop.db}.totals"]):
        with pytest.raises(OtherOwner, match=f"belongs to project {shop.db}"):
            bureau.varve(*words)
    report = bureau.json("sweep", "--older-than", "0s")
    assert revenue in report["of_other_projects"]
    assert revenue not in report["batches"]
    assert shop.json("history", revenue) == history
    # The owner's own sweep takes what it replaced.
    assert revenue in shop.json("sweep", "--older-than", "0s")["batches"]


def test_what_a_sensor_left_out_is_listed_by_its_project_and_by_those_that_read_it(shop: Team, bureau: Team) -> None:
    sales, revenue = f"{shop.db}.sales", f"{shop.db}.revenue"
    left_out = [LeftOut(sales, "look", f"{sales}: the server is away"), LeftOut(revenue, "plan", "no such zone")]
    with connect(shop.settings, application="a test") as connection:
        RejectedArrivals(connection).leave_out("arrivals of a test", left_out)
    assert sorted(entry["dataset"] for entry in shop.json("plan")["left_out"]) == [revenue, sales]
    assert [entry["dataset"] for entry in bureau.json("plan")["left_out"]] == [revenue]
    # The reason begins with the dataset, which is named once.
    assert f"not looked at: {sales}: the server is away (since" in shop.varve("plan")


def test_what_another_project_was_made_from_is_dropped_only_if_that_is_meant(shop: Team, bureau: Team) -> None:
    bureau.run_due()
    for name in ("revenue", "totals", "trailing"):
        (shop.root / f"{shop.db}_assets" / f"{name}.sql").unlink()
    with pytest.raises(VarveError, match=rf"{bureau.db}.best of project {bureau.db} was made from it. Nothing was"):
        shop.varve("drop", f"{shop.db}.revenue", "--dry-run")
    shop.varve("drop", f"{shop.db}.totals")
    shop.varve("drop", f"{shop.db}.revenue", "--although-read")
    assert best(bureau) == {DAYS[0]: 250, DAYS[1]: 250}


def test_the_owners_are_listed_where_a_project_declares_nothing(shop: Team) -> None:
    for file in (shop.root / f"{shop.db}_assets").glob("*.sql"):
        file.unlink()
    owned = {each["dataset"]: each["project"] for each in shop.json("own")}
    assert owned[f"{shop.db}.revenue"] == shop.db


def test_what_two_projects_declare_is_computed_by_the_first(shop: Team, bureau: Team) -> None:
    bureau.file(f"{shop.db}_revenue").unlink()
    # The same declaration, and then another one.
    bureau.file("sales").write_text((shop.root / f"{shop.db}_assets" / "sales.sql").read_text())
    bureau.declare("revenue", REVENUE.format(db=shop.db, also=""), db=shop.db)
    assert bureau.run_due() == [f"best {DAYS[0]} ... {DAYS[1]}"]
    shop.send(DAYS[3], ("pen", 40))
    assert bureau.run_due() == []
    bureau.declare("revenue", REVENUE.format(db=shop.db, also=" AND sales.cents > 1"), db=shop.db)
    plan = bureau.json("plan")
    assert {change["dataset"]: (change["kind"], change.get("owner")) for change in plan["changes"]["datasets"]} == {
        f"{shop.db}.{name}": ("elsewhere", shop.db) for name in ("sales", "revenue")
    }
    assert f"belongs to project {shop.db}" in " ".join(bureau.varve("plan").split())
    assert {dataset for dataset, problem in findings(bureau) if "declared here too" in problem} == {
        f"{shop.db}.sales", f"{shop.db}.revenue",
    }  # fmt: skip
    # A run by hand is refused, and counts as no failure of the owner's partition.
    run = materialise_by_hand(bureau, f"{shop.db}.revenue", DAYS[3])
    assert f"belongs to project {shop.db}" in run
    assert shop.rows(f"select from varve.batch where dataset = '{shop.db}.revenue' and state = 'failed'") == []
    assert f"revenue {DAYS[3]}" in shop.run_due()


def test_a_dataset_is_handed_over(shop: Team, bureau: Team) -> None:
    bureau.run_due()
    bureau.file(f"{shop.db}_revenue").unlink()
    sales = bureau.file("sales")
    sales.write_text((shop.root / f"{shop.db}_assets" / "sales.sql").read_text())
    bureau.declare("revenue", REVENUE.format(db=shop.db, also=""), db=shop.db)
    assert "belonged to" in bureau.varve("own", f"{shop.db}.revenue", f"{shop.db}.sales")
    # The one before holds, and says so; the other one goes on with what is there.
    shop.send(DAYS[4], ("pen", 40))
    assert shop.run_due() == []
    assert f"belongs to project {bureau.db}" in str(findings(shop))
    assert bureau.run_due() != []
    assert best(bureau)[DAYS[4]] == 40
    assert shop.run_due() == [f"totals {DAYS[4]}"]
    with pytest.raises(VarveError, match="not to this one"):
        shop.varve("own", "--leave", f"{shop.db}.revenue")
    bureau.varve("own", "--leave", f"{shop.db}.revenue")
    assert f"{shop.db}.revenue" not in {each["dataset"] for each in bureau.json("own")}


def test_what_is_declared_otherwise_than_it_is_published_keeps_its_readers_waiting(shop: Team, bureau: Team) -> None:
    file = bureau.file(f"{shop.db}_revenue")
    written = file.read_text()
    file.write_text(written.replace("cents BIGINT", "cents DOUBLE"))
    bureau.reload()
    assert bureau.run_due() == []
    reason = bureau.json("why", f"{bureau.db}.best", f"day={DAYS[0]}")["reason"]
    assert f"project {shop.db} publishes {shop.db}.revenue otherwise" in reason
    assert findings(bureau) == [
        (f"{shop.db}.revenue", (f"project {shop.db} publishes it otherwise than it is declared here: cents is BIGINT, "
         "and is declared as DOUBLE"))
    ]  # fmt: skip
    # Columns that nobody here reads may be left out, and windows that begin later hide nothing there.
    file.write_text(written.replace("product STRING,\n  ", "").replace(f"START '{DAYS[0]}'", f"START '{DAYS[1]}'"))
    bureau.declare("best", BEST, store="WAREHOUSE")
    assert "product" not in file.read_text()
    assert bureau.run_due() == [f"best {DAYS[1]}"]
    assert bureau.json("retire", "--dry-run") == []
    assert shop.totals().keys() == set(DAYS[:2])
    file.write_text(written.replace(f"project = '{shop.db}'", "project = 'nobody'"))
    bureau.reload()
    ((dataset, problem),) = findings(bureau)
    assert (dataset, problem) == (
        f"{shop.db}.revenue", f"declared as of project nobody, and it belongs to project {shop.db}",
    )  # fmt: skip


def test_a_project_without_a_name_owns_nothing_and_leaves_the_others_alone(shop: Team, bureau: Team) -> None:
    (bureau.root / "varve.toml").write_text(f'assets = "{bureau.db}_assets"\ndefinitions = "{bureau.db}_definitions"\n')
    bureau.reload()
    assert bureau.run_due() == [f"best {DAYS[0]} ... {DAYS[1]}"]
    assert f"{bureau.db}.best" not in {each["dataset"] for each in bureau.json("own")}
    with pytest.raises(VarveError, match="this one has none"):
        bureau.varve("own", f"{bureau.db}.best")
    bureau.file(f"{shop.db}_revenue").unlink()
    bureau.file(f"{bureau.db}_best").unlink()
    with pytest.raises(OtherOwner, match="this project has no name"):
        bureau.varve("drop", f"{shop.db}.totals")
    # A name makes what it has run its own.
    bureau.declare("other", "AS SELECT 1 AS one;")
    (bureau.root / "varve.toml").write_text(
        f'assets = "{bureau.db}_assets"\ndefinitions = "{bureau.db}_definitions"\n[settings]\nproject_name = "named"\n'
    )
    bureau.run_due()
    assert {each["dataset"]: each["project"] for each in bureau.json("own")}[f"{bureau.db}.other"] == "named"


def materialise_by_hand(team: Team, name: str, day: dt.date) -> str:
    """What `dagster asset materialize` of a day says, whose run fails."""
    import dagster as dg

    from varve.dagster.instance import open_instance

    team.reload()
    definitions: Any = team.project.module(team.project.definitions).defs
    with open_instance(team.settings) as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(
            instance=instance, partition_key=str(day), raise_on_error=False,
            asset_selection=[dg.AssetKey(name.split("."))],
        )  # fmt: skip
        assert not done.success
        return str([event.event_specific_data for event in done.all_events if event.is_failure])


def test_a_change_that_reads_another_project_is_tried_and_promoted(shop: Team, bureau: Team) -> None:
    bureau.run_due()
    bureau.varve("env", "create", "trial")
    bureau.declare("best", BEST.replace("MAX", "MIN"), store="WAREHOUSE")
    bureau.varve("env", "run", "trial")
    assert best(bureau) == {DAYS[0]: 250, DAYS[1]: 250}
    before = shop.json("history", f"{shop.db}.revenue")
    bureau.varve("promote", "trial")
    assert best(bureau) == {DAYS[0]: 100, DAYS[1]: 100}
    # Of the other project nothing was computed, and nothing promoted.
    assert shop.json("history", f"{shop.db}.revenue") == before
    assert well(bureau)


@pytest.mark.parametrize(
    "header",
    [
        "/*@ CREATE DATASET shop.plan (n BIGINT) PARTITIONED BY (day DATE, c STRING) {clauses} */ SELECT 1 AS n",
        "CREATE DATASET shop.plan (n BIGINT) PARTITIONED BY (day DATE, c STRING) {clauses} ALLOW RANDOM AS SELECT 1",
    ],
)
def test_the_file_of_a_dataset_has_its_windows_and_sets_and_nothing_else(header: str) -> None:
    clauses = """FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01'), -- of its own
        c IN DYNAMIC 'carriers' FROM (SELECT carrier FROM shop.flights) ON REMOVAL WITHDRAW
        LET day = CAST(t AS DATE) WINDOWS AHEAD 3"""
    written = parse(SourceFile("plan.sql", header.format(clauses=clauses)))
    published = PublishedDataset(0, "lake", {"columns": [["n", "BIGINT", False, "it's"]], "comment": ""})
    text = "\n".join(of_project.declared_lines("shop.plan", "shop", published, written))
    again = parse(SourceFile("plan.sql", text))
    assert again.option("project") == "shop"
    assert [(column.name, column.comment, column.nullable) for column in again.columns] == [("n", "it's", False)]
    assert [str(name.variables) for name in again.generators] == [str(name.variables) for name in written.generators]
    assert again.end_offset == written.end_offset == 4
    assert "shop.flights" not in text
    assert "ALLOW" not in text


def test_a_table_is_imported_where_nothing_ever_ran(fresh_database: str, settings: Settings) -> None:
    """The catalog is asked for an owner before it has any table."""
    asked = settings.model_copy(update={"postgres_url": fresh_database})
    assert of_project.text_of_dataset(asked, "dumps.clicks", "shop") is None
