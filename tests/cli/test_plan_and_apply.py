"""`varve plan` and `varve apply` on a project whose query was edited: what people see, and what they may decide."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.catalog.test_deployments import DAYS, NOW, Process
from tests.model.test_schema import types
from tests.support.project import commands_on
from varve.catalog.catalog import Catalog
from varve.catalog.rows import declaration
from varve.cli.app import app
from varve.cli.plan import changes, planning
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.changes.code_changes import CodeChange, CodeChangeKind, DeployedCode, KeptBatches, code_changes
from varve.planning.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.services.settings import Settings


@pytest.fixture
def edited(settings: Settings, fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """A process whose query of revenue was edited after three days were published; commands are of its project."""
    monkeypatch.setenv("VARVE_POSTGRES_URL", fresh_database)
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", fresh_database)
    monkeypatch.setattr(planning.console, "width", 200)
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        Catalog(connection).ensure_schema()
        process = Process(connection)
        for key in DAYS:
            process.arrive(key, "a")
        for name in process.codes:
            process.run(name, *DAYS)
        edited = process.with_code("r2")
        commands_on(edited.graph, monkeypatch)
        yield edited


def varve(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=True)
    if isinstance(result.exception, VarveError):
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.output


def test_a_plan_is_shown_and_applied_by_its_number(edited: Process) -> None:
    shown = varve("plan", "--exit-code", code=3)
    assert "~ shop.revenue: changed; 3 of 3 partitions were made by other code than the code here" in shown
    assert "code r1 is deployed, r2 is here; declared: ON CODE CHANGE HOLD" in shown
    assert "to compute: day=2026-11-01 ... day=2026-11-03: 3 rows, 3 bytes" in shown
    assert "downstream: at most 3 partitions of shop.report" in shown
    assert "-text of r1" in shown
    assert "+text of r2" in shown
    assert "`varve apply 1` does as they declare" in shown
    assert "shop.revenue: deployed r2; 3 partitions to be computed again" in varve("apply", "1", "--rebuild")
    assert "plan 1 was applied at" in varve("apply", "1")
    shown = varve("plan", "--exit-code")
    assert "shop.revenue: made by other code: 3 of 3 partitions; they are computed again" in shown
    assert "due: shop.revenue 2026-11-01...2026-11-03 (3 partitions): made by other code than is deployed" in shown


def test_a_plan_of_some_datasets_has_the_map_of_those_alone(edited: Process) -> None:
    values = json.loads(varve("plan", "shop.report", "shop/revenue", "--json"))
    assert [each["dataset"] for each in values["datasets"]] == ["shop.revenue", "shop.report"]
    assert [each["dataset"] for each in json.loads(varve("plan", "shop.orders", "--json"))["due"]] == []
    assert {each["dataset"] for each in values["changes"]["datasets"]} == {"shop.revenue"}, "what the code changes"
    assert "there is no dataset 'shop.revenu'; there are " in varve("plan", "shop.revenu")
    assert "Did you mean" in varve("plan", "shop.revenu")


def test_the_values_for_programs_and_for_a_pull_request(edited: Process) -> None:
    changes = json.loads(varve("plan", "--json"))["changes"]
    assert changes["number"] == 1
    (change,) = changes["datasets"]
    assert (change["dataset"], change["kind"], change["needs_decision"]) == ("shop.revenue", "changed", True)
    assert sorted(change["partitions"]) == [key.path for key in DAYS]
    markdown = varve("plan", "--markdown")
    assert "| changed | `shop.revenue` | 3 of 3 | shop.report 3 |" in markdown
    assert "```diff\n" in markdown
    applied = json.loads(varve("apply", "1", "--forward-from", "2026-11-03", "--json"))
    assert [(each["dataset"], each["decision"], each["forward_from"]) for each in applied] == [
        ("shop.revenue", "forward", "2026-11-03")
    ]
    assert varve("plan", "--markdown").startswith("| | dataset |")


def test_what_follows_for_the_batches_that_are_there_is_said_before_a_run_is_refused(
    edited: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(*columns: Column) -> str:
        dataset = replace(edited.revenue, schema=Schema(columns))
        commands_on(replace(edited, revenue=dataset).graph, monkeypatch)
        return varve("plan")

    discount = Column("discount", ColumnType.BIGINT)
    first, *others = edited.revenue.schema.columns
    assert "    discount: NULL in partitions that are not computed again.\n" in declared(first, *others, discount)
    shown = declared(*others, discount)
    assert (
        f"    It needs a new generation. Renamed, or one dropped and another added: {first.name} {first.type} -> "
        in shown
    )
    (change,) = json.loads(varve("plan", "--json"))["changes"]["datasets"]
    assert [consequence["new_generation"] for consequence in change["consequences"]] == [True]
    number = json.loads(varve("plan", "--json"))["changes"]["number"]
    assert "`varve evolve shop.revenue` builds it" in varve("apply", str(number), "--rebuild")


def test_another_grain_is_another_generation(edited: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    weekly = TimeDimension.of("day", "@weekly", "2026-10-25", "2026-11-22", timezone="Europe/Paris")
    dataset = replace(edited.revenue, partitioning=Partitioning((weekly,)))
    commands_on(replace(edited, revenue=dataset).graph, monkeypatch)
    shown = varve("plan")
    assert (
        "It needs a new generation. Its windows were 0 0 * * *, Europe/Paris, and are 0 0 * * 0, Europe/Paris" in shown
    )


def test_what_is_wrong_in_a_request_changes_nothing(edited: Process) -> None:
    varve("plan")
    assert "exclude each other" in varve("apply", "1", "--rebuild", "--hold")
    assert "'tomorrow' is no date" in varve("apply", "1", "--forward-from", "tomorrow")
    assert "there is no plan 7; the newest is 1" in varve("apply", "7")
    assert "plan 1 decides nothing of shop.orders" in varve("apply", "1", "shop.orders")
    assert edited.deployments.current()["shop.revenue"].code_version == "r1"


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,6}\Z"), types, min_size=1, max_size=4))
def test_an_unchanged_dataset_is_no_change_whatever_its_types_are(columns: dict[str, object]) -> None:
    """The catalog keeps types as text in JSON: compared with the declaration, they are what they were."""
    schema = Schema(tuple(Column(name, kind) for name, kind in columns.items()))  # type: ignore[arg-type]
    dataset = Dataset(
        "shop.any", Partitioning((StaticDimension("key__", ("a", "b")),)), schema, StoreKind.LAKE, "Anything."
    )
    kept = json.loads(json.dumps(declaration(dataset)))
    names = {name: kind for name, kind, *_ in (*kept["partition_columns"], *kept["columns"])}
    graph = Graph({"shop.any": dataset}, {}, {"shop.any": "v2"}, sources={"shop.any": ""})
    (change,) = code_changes(graph, {"shop.any": DeployedCode("v1", "", names, on_hold=True)}, {}, {}, None, NOW)
    assert change.columns == ()
    assert code_changes(graph, {"shop.any": DeployedCode("v2", "", names, on_hold=True)}, {}, {}, None, NOW) == []


@pytest.mark.parametrize(
    ("differing", "words"),
    [
        ((), "in 3 of 3 partitions"),
        (("day=1",), "in 2 of 3 partitions; day=1 differs"),
        (("day=1", "day=2", "day=3"), "in 0 of 3 partitions; day=1, day=2 and 1 more differ"),
    ],
)
def test_of_kept_batches_it_is_said_whether_their_rows_are_the_current_ones(
    differing: tuple[str, ...], words: str
) -> None:
    paths = ("day=1", "day=2", "day=3")
    change = CodeChange(
        "shop.revenue", CodeChangeKind.CHANGED, "b", "a", "", (), (), (), dict.fromkeys(paths, 1), 3, {}, "", "",
        kept=KeptBatches(paths, ("alice",), 3, differing),
    )  # fmt: skip
    assert changes._kept(change)[1] == f"rows of the kept batches: the same as the current ones {words}"
