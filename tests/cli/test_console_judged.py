"""The plan of the console, which follows changes, is the one that `varve plan` makes anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.catalog.backfills import Backfills
from varve.cli.context import working_on
from varve.cli.observe.console.judged import JudgedPlan
from varve.cli.plan.open_plan import opened_plan
from varve.cli.plan.why import why
from varve.dagster.definitions import definitions
from varve.model.batch import Input
from varve.services.postgres import connect

if TYPE_CHECKING:
    import pytest

    from tests.cli.console_project import Console

PARIS = "day=2026-11-01/store=Paris"


def states(console: Console, plan: JudgedPlan) -> dict[tuple[str, str], tuple[str, str]]:
    """By dataset and partition the state and the reason, as judged by a look that follows the one before."""
    seen = plan.look().result(60)
    return {
        (name, path): (str(judged.state), judged.reason)
        for name, judgements in seen.judgements.items()
        for path, judged in judgements.items()
        if name.startswith(console.db)
    }


def anew(console: Console) -> dict[tuple[str, str], tuple[str, str]]:
    with working_on(console.project), opened_plan() as open_plan:
        return {
            (name, path): (str(judged.state), judged.reason)
            for name, judgements in open_plan.plan().judgements.items()
            for path, judged in judgements.items()
            if name.startswith(console.db)
        }


def test_what_follows_the_changes_is_what_is_judged_anew(console: Console) -> None:
    plan = JudgedPlan(console.project)
    sales = f"{console.db}.sales"
    assert states(console, plan) == anew(console)
    batch = console.publish("sales", PARIS, "first")
    assert states(console, plan) == anew(console)
    console.publish("totals", "day=2026-11-01", "made", Input(sales, PARIS, str(batch)))
    assert states(console, plan) == anew(console)
    console.publish("sales", PARIS, "again")
    assert states(console, plan) == anew(console), "what reads it is due"
    console.publish("sales", "day=2026-11-02/store=Paris", "broken", failure="it broke")
    assert states(console, plan) == anew(console)
    with connect(console.project.settings, application="varve test") as connection:
        Backfills(connection).add({sales: [PARIS]}, reason="wrong", owner="ann")
    found = states(console, plan)
    assert found == anew(console)
    assert len({state for state, _ in found.values()}) > 1


def test_a_look_changes_nothing_in_the_catalog(console: Console) -> None:
    """Also not the changes that the sensors have still to read."""
    console.publish("sales", PARIS, "first")
    with connect(console.project.settings, application="varve test") as connection:
        connection.execute("update varve.change set at = at - interval '3 days'")
        before = connection.execute("select count(*) from varve.change").fetchone()
        JudgedPlan(console.project).look().result(60)
        assert connection.execute("select count(*) from varve.change").fetchone() == before


def test_the_page_of_a_partition_says_what_the_command_says(console: Console) -> None:
    console.publish("sales", PARIS, "first")
    console.publish("sales", "day=2026-11-02/store=Paris", "broken", failure="it broke")
    for path in (PARIS, "day=2026-11-02/store=Paris", "day=2026-10-31/store=Paris"):
        with working_on(console.project):
            said = why(f"{console.db}.sales", path.split("/"))
        shown = console.page(f"/dataset/{console.db}.sales/partition?path={path}")
        assert f"</i> {said['state']}</span>: {said['reason']}".replace("'", "&#39;") in shown, path


def test_the_page_of_an_asset_leads_to_the_console_where_that_has_an_address(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def links() -> set[str]:
        specs = definitions(console.project).resolve_all_asset_specs()
        found = [spec.metadata.get("varve/console") for spec in specs]
        return {str(link.value) for link in found if link is not None}

    assert links() == set(), "without an address there is no link that leads nowhere"
    monkeypatch.setenv("VARVE_CONSOLE_URL", "http://127.0.0.1:3001/")
    assert links() == {f"http://127.0.0.1:3001/dataset/{console.db}.{table}" for table in ("sales", "totals")}
