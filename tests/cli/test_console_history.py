"""The pages of the console that look back: two batches beside each other, lineage, publishes and promotions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from psycopg.types.json import Jsonb

from tests.cli.console_project import HOSTILE, SCRIPT
from tests.cli.test_console import REJECTED, text_of
from varve.catalog.catalog import Catalog
from varve.catalog.history import moves
from varve.dagster.discovery import load_project
from varve.model.batch import Input
from varve.services.postgres import connect

if TYPE_CHECKING:
    import pytest

    from tests.cli.console_project import Console
    from varve.model.batch import BatchId

PARIS = "day=2026-11-01/store=Paris"
# A promotion as `varve promote` keeps it.
PROMOTED = """
    insert into varve.plan (digest, contents, made_by, applied_at, applied_by) values ('d', %s, 'ann', now(), %s)
"""


def test_two_batches_stand_beside_each_other_with_what_differs(console: Console) -> None:
    files = [Input("landing", PARIS, "one"), Input("landing", PARIS, "two")]
    first = console.publish("sales", PARIS, "first", files[0])
    second = console.publish("sales", PARIS, "second", files[1])
    address = f"/dataset/{console.db}.sales/diff?path={quote(PARIS, safe='')}"
    shown = text_of(console.page(address))
    assert f"batch {first} and batch {second}" in shown, "the current one and the one before it, by default"
    assert "run first second differs" in shown
    assert "rows 3 3 " in shown
    assert f"landing day=2026-11-01, store=Paris {files[0].version} {files[1].version}" in shown
    assert console.commands(address) == [
        f"varve diff {console.db}.sales day=2026-11-01 store=Paris --from {first} --to {second}"
    ]
    same = text_of(console.page(f"{address}&from={first}&to={first}"))
    assert "Both were made from the same inputs." in same
    assert (
        "differs"
        not in same.split("The two batches; what differs is marked")[1].replace("Differs", "").split("Both")[0]
    )
    assert f"there are {second}, {first}" in text_of(console.page(f"{address}&from=1&to={second}", 404))
    for wrong in ("x", "-1", "9" * 400, "1.5"):
        assert "is a whole number" in console.page(f"{address}&from={wrong}", 400)


def test_the_oldest_batch_stands_beside_the_next_one_where_it_is_current_again(console: Console) -> None:
    first, second, _ = (console.publish("sales", PARIS, run) for run in ("first", "second", "third"))
    dataset = load_project(console.project).graph.datasets[f"{console.db}.sales"]
    key = dataset.partitioning.from_path(PARIS)
    with connect(console.project.settings, application="varve test") as connection:
        back = Catalog(connection).lock_partitions(dataset, [key], run_id="back")
        Catalog(connection).repoint(back, {key: first})
    shown = text_of(console.page(f"/dataset/{console.db}.sales/diff?path={quote(PARIS, safe='')}"))
    assert f"batch {second} and batch {first}" in shown


def test_a_partition_with_one_batch_has_nothing_to_compare(console: Console) -> None:
    console.publish("sales", PARIS, "first")
    address = f"/dataset/{console.db}.sales/diff?path={quote(PARIS, safe='')}"
    assert "no two to compare" in console.page(address, 404)


def test_lineage_leads_both_ways(console: Console) -> None:
    sales, totals = f"{console.db}.sales", f"{console.db}.totals"
    batch = console.publish("sales", PARIS, "first", Input("landing", PARIS, "v"))
    console.publish("totals", "day=2026-11-01", "second", Input(sales, PARIS, str(batch)))
    here = console.page(f"/dataset/{sales}/lineage?path={quote(PARIS, safe='')}")
    assert "Made from landing day=2026-11-01, store=Paris" in text_of(here)
    assert f"Made from it {totals} day=2026-11-01" in text_of(here)
    assert here.count('<path class="edge"') == 2
    # Each box is a link, once in the picture and once in the list; a file that arrived is no partition of ours.
    there = f"/dataset/{totals}/lineage?path=day%3D2026-11-01"
    assert here.count(f'href="{there}"') == 2
    assert "/dataset/landing" not in here
    back = console.page(there)
    assert f'href="/dataset/{sales}/lineage?path=day%3D2026-11-01/store%3DParis"' in back
    assert "Which was made from landing" in text_of(back)
    nothing = console.page(f"/dataset/{totals}/lineage?path=day%3D2026-11-02")
    assert "nothing was made from it" in nothing


def test_a_publish_shows_everything_that_it_moved(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    first = console.publish("sales", PARIS, "first")
    second = console.publish("sales", PARIS, "second")
    listed = console.page("/publishes")
    assert listed.index("/run/second") < listed.index("/run/first"), "the newest first"
    assert "There is none before that." in console.page("/publishes?before=1")
    with connect(console.project.settings, application="varve test") as connection:
        ((oldest,),) = connection.execute("select min(id) from varve.publish").fetchall()
    assert "Earlier ones" not in console.page(f"/publishes?before={oldest + 1}")
    monkeypatch.setattr(moves, "_ROWS", 1)
    assert "Earlier ones" in console.page("/publishes")
    run = console.page("/run/second")
    assert f"{console.db}.sales 1 publish" in text_of(run)
    assert f"day=2026-11-01, store=Paris {first} {second} the same what differs" in text_of(run)
    assert f"from={first}&amp;to={second}" in run


def test_a_promotion_says_of_which_environment_and_whose_code_it_deployed(console: Console) -> None:
    run = f"promotion-of-{console.db}"
    console.publish("sales", PARIS, run)
    contents = {"environment": f"e{SCRIPT}", "codes": {f"{console.db}.sales": "1"}, "partitions": {}, "run": run}
    with connect(console.project.settings, application="varve test") as connection:
        connection.execute(PROMOTED, (Jsonb(contents), f"ann {SCRIPT}"))
    shown = console.page(f"/run/{run}")
    assert f"of environment e{SCRIPT}, by ann {SCRIPT}" in text_of(shown)
    assert f"deployed the code of {console.db}.sales" in text_of(shown)
    assert re.fullmatch(r"varve revert \d+", console.commands(f"/run/{run}")[0])
    assert "promotion" in text_of(console.page("/publishes"))
    assert "<script" not in shown.lower() + console.page("/publishes").lower()


def test_the_calendar_has_a_row_for_each_key_and_a_word_for_each_state(console: Console) -> None:
    console.publish("sales", PARIS, "r")
    console.publish("sales", "day=2026-11-02/store=Paris", "r2", failure="it broke")
    console.publish("sales", HOSTILE, "r3")
    shown = console.page(f"/dataset/{console.db}.sales")
    (table,) = re.findall(r'<table class="calendar">.*?</table>', shown, re.DOTALL)
    assert re.findall(r'<th scope="col">(.*?)</th>', table) == ["01", "02"], "days of the month"
    rows = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert "Paris" in rows
    assert len(rows) == 2
    cells = re.findall(r'<td class="s-([a-z-]+)"><a href="([^"]+)" title="([^"]+)">(.*?)</a></td>', table)
    for state, _, title, content in cells:
        word = state.replace("-", " ")
        assert f": {word}, " in title
        assert f'<span class="unseen">{word}</span>' in content
        assert 'aria-hidden="true"' in content, "its letter, which a screen reader does not read"
    assert len({content for _, _, _, content in cells}) == len({state for state, *_ in cells}) > 1
    assert "<script" not in shown.lower()


STORES = tuple(f"store=s{number:03}" for number in range(250))


def with_stores(console: Console) -> BatchId:
    """A dataset by one key, which makes no calendar; all but the last of its partitions are published."""
    names = ", ".join(f"'{path.removeprefix('store=')}'" for path in STORES)
    (console.project.assets / "stores.sql").write_text(
        f"CREATE DATASET {console.db}.stores (n INT) COMMENT 'c' OWNER 'o@example.com' STORED IN LAKE\n"
        f"PARTITIONED BY (store STRING) FOR store IN ({names})\nEXTERNAL;\n"
    )
    console.reload()
    return console.publish_all("stores", STORES[:-1], "r")


def test_a_long_list_that_is_no_calendar_begins_with_what_needs_attention(console: Console) -> None:
    with_stores(console)
    console.publish("stores", STORES[-1], "broken", failure="it broke")
    shown = text_of(console.page(f"/dataset/{console.db}.stores"))
    assert "250 partitions, the worst first, of which 50 more are not listed here" in shown
    assert shown.index(STORES[-1]) < shown.index(STORES[0])


def test_of_many_inputs_those_that_have_changed_come_first_and_the_others_are_counted(console: Console) -> None:
    batch, stores = with_stores(console), f"{console.db}.stores"
    last = console.publish("stores", STORES[-1], "r")
    inputs = [Input(stores, path, str(batch)) for path in STORES[:-1]]
    console.publish("totals", "day=2026-11-01", "made", *inputs, Input(stores, STORES[-1], str(last)))
    changed = console.publish("stores", STORES[-1], "again")
    shown = text_of(console.page(f"/dataset/{console.db}.totals/partition?path=day%3D2026-11-01"))
    assert f"Now {stores} {STORES[-1]} {last} {changed} {stores} {STORES[0]} {batch} the same" in shown
    assert "and 50 more: varve show --batch --json" in shown


def test_lists_say_what_they_leave_out(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varve.cli.observe.console.pages._LISTED", 2)
    address = f"/dataset/{console.db}.sales/partition?path={quote(PARIS, safe='')}"
    for run in ("first", "second"):
        console.publish("sales", PARIS, run)
    assert "Every batch of this partition" in console.page(address)
    console.publish("sales", PARIS, "third")
    shown = text_of(console.page(address))
    assert "The newest 2 batches of this partition" in shown
    assert "There are earlier ones: varve history --limit" in shown
    dataset = f"{console.db}.sales"
    with connect(console.project.settings, application="varve test") as connection:
        try:
            for number in range(203):
                connection.execute(REJECTED, (dataset, f"/landing/{number}.csv", "not CSV"))
            console.browser = console.again()
            assert "and 3 more: varve plan --json" in text_of(console.page(f"/dataset/{dataset}"))
            assert re.search(r"and \d+ more: varve plan --json", text_of(console.page("/")))
        finally:
            connection.execute("delete from varve.rejected_arrival where dataset = %s", (dataset,))


def test_the_new_pages_take_no_text_of_others_for_their_own(console: Console) -> None:
    for run in (f"one {SCRIPT}", f"two {SCRIPT}"):
        console.publish("sales", HOSTILE, run, Input(f"landing {SCRIPT}", f"file={SCRIPT}", f"v of {run}"))
    path = quote(HOSTILE, safe="")
    for address in (
        f"/dataset/{console.db}.sales/diff?path={path}", f"/dataset/{console.db}.sales/lineage?path={path}",
        "/publishes", f"/run/{quote(f'two {SCRIPT}', safe='')}", f"/dataset/{console.db}.sales?month=2026-11",
    ):  # fmt: skip
        shown = console.page(address)
        assert "alert(1)" in shown, address
        assert "<script" not in shown.lower(), address
