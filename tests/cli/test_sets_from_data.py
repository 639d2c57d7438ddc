"""Sets that data fill: `product IN DYNAMIC 'products' FROM (SELECT DISTINCT product FROM shop.sales)`."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import SALES, Shop
from tests.support.project import ROOT
from varve.dagster.automation.reconciling import Reconciler
from varve.dagster.automation.requesting import accepted
from varve.dagster.discovery import load_project
from varve.dagster.instance import open_instance
from varve.dagster.partitions import set_feed
from varve.model.errors import VarveError
from varve.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench
    from varve.model.batch import BatchId

OF_PRODUCT = """
CREATE DATASET shop.of_product
  COMMENT 'For a test.'
  STORED IN LAKE
  PARTITIONED BY (product STRING)
  FOR p IN DYNAMIC 'shop.products' FROM ({query}){removal}
  INSERT (product = p)
  ALLOW FULL SCAN OF shop.sales
  WAIT AT LEAST 1
AS
SELECT SUM(price) AS revenue FROM shop.sales s WHERE s.product = p;
"""
ALL = "SELECT DISTINCT product FROM shop.sales"
NAMED = f"{ALL} WHERE product IS NOT NULL"
FIRST = [(1, "pen", "1.00"), (2, "ink", "2.00"), (3, "pen", "1.00")]


@pytest.fixture
def shop(tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("DAGSTER_HOME", str(ROOT))
    return Shop.at(tmp_path, workbench, monkeypatch)


def declare(shop: Shop, query: str = ALL, removal: str = "") -> None:
    text = OF_PRODUCT.format(query=query, removal=f" ON REMOVAL {removal}" if removal else "")
    (shop.assets / "of_product.sql").write_text(text.replace("shop.", f"{shop.db}.").lstrip())


def tick(shop: Shop) -> tuple[list[list[str]], dict[str, str]]:
    """What a tick of the sensors requests of `of_product`, as lists of keys; and what it says is wrong."""
    shop.asset("of_product")
    project = Project.find(shop.root)
    graph, catalog = load_project(project).graph, shop.workbench.catalog()
    with closing(catalog.connection) as connection, open_instance(project.settings) as instance:
        plan = Reconciler(graph, project).tick(connection, instance, project.settings)
        due = [run for run in plan.runs if run.dataset.table == "of_product"]
        runs = list(accepted(due, instance, []))
    return [[str(key["product"]) for key in run.partitions] for run in runs], dict(plan.failed)


def keys(shop: Shop) -> list[str]:
    members: list[str] = shop.json("keys", "list")[f"{shop.db}.products"]
    return members


def take_back(shop: Shop, day: str, batch: BatchId) -> None:
    done = shop.run("rollback", "shop.sales", f"day={day}", "--to", str(batch.millis), "--reason", "wrong")
    assert done.exit_code == 0, done.output


def test_new_keys_come_with_the_publish_that_brings_them_and_are_one_run(shop: Shop) -> None:
    declare(shop)
    assert tick(shop) == ([], {})
    shop.sell("2026-11-01", FIRST)
    assert tick(shop) == ([["ink", "pen"]], {})
    shop.sell("2026-11-02", [(4, "cap", "3.00"), (5, "pen", "1.00"), (6, "ant", "1.00")])
    # Dagster has the keys in the order in which they were added: what is new is a range of it, and so is the rest.
    assert sorted(tick(shop)[0]) == [["ink", "pen", "ant", "cap"]]
    assert keys(shop) == ["ant", "cap", "ink", "pen"]


def test_a_dataset_that_has_the_set_alone_leaves_it_to_the_one_that_says_what_fills_it(shop: Shop) -> None:
    declare(shop)
    # It reads the other one, and so comes after it in the graph.
    alone = OF_PRODUCT.replace("shop.of_product", "shop.forecast").replace(" FROM ({query}){removal}", "")
    alone = alone.replace("  ALLOW FULL SCAN OF shop.sales\n", "").replace("shop.sales", "shop.of_product")
    (shop.assets / "forecast.sql").write_text(
        alone.replace("price", "revenue").replace("shop.", f"{shop.db}.").lstrip()
    )
    shop.sell("2026-11-01", FIRST)
    assert tick(shop) == ([["ink", "pen"]], {})
    assert f"from SELECT DISTINCT product FROM {shop.db}.sales" in " ".join(shop.run("keys", "list").output.split())
    error = shop.run("keys", "remove", f"{shop.db}.products", "pen").exception
    assert "which has pen: the next tick would add them again" in str(error)


def test_a_key_with_brackets_that_somebody_typed_in_the_ui_is_told_as_it_was_typed(shop: Shop) -> None:
    (shop.assets / "of_product.sql").write_text(
        OF_PRODUCT.replace(" FROM ({query}){removal}", "").replace("shop.", f"{shop.db}.").lstrip()
    )
    with open_instance(Project.find(shop.root).settings) as instance:
        instance.add_dynamic_partitions(f"varve/{shop.db}.products", ["[/pen]"])
    done = shop.run("keys", "follow")
    assert done.exit_code == 0, done.exception
    assert f"varve/{shop.db}.products: [/pen] is spelt %5B/pen%5D" in done.output
    assert keys(shop) == ["[/pen]"]


def test_a_key_that_is_in_no_set_is_named_with_those_that_are_and_nothing_is_said_of_its_inputs(shop: Shop) -> None:
    declare(shop)
    (shown,) = shop.run("tasks", "shop.of_product").output.splitlines()
    assert shown.endswith(f", as the set {shop.db}.products has no key yet.")
    shop.sell("2026-11-01", FIRST)
    tick(shop)
    reason = (
        f"'pens' is no key of the set {shop.db}.products, which has 'ink', 'pen' (Did you mean pen?); "
        f"`varve keys add {shop.db}.products pens` adds it"
    )
    told = shop.json("why", "shop.of_product", "product=pens")
    assert (told["state"], told["reason"], told["reads"]) == ("missing", reason, [])
    assert f"no run computes it now: {reason}" in shop.run("show", "shop.of_product", "product=pens").output
    assert f"no run computes it now: {reason}" in shop.run("preview", "shop.of_product", "product=pens").output
    assert shop.json("preview", "shop.of_product", "product=pen")["not_now"] is None
    assert shop.json("show", "shop.of_product", "product=pen")["partition"]["not_now"] is None
    assert shop.json("why", "shop.of_product", "product=pen")["reads"][0]["state"] == "current"


def test_a_batch_is_read_once_and_every_step_may_be_the_last(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(shop)
    shop.sell("2026-11-01", FIRST)
    shop.asset("of_product")

    class Killed(BaseException):
        """The end of the process."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    follow, keys_of = set_feed._follow, set_feed._keys_of
    for name in ("_keys_of", "_follow"):
        with monkeypatch.context() as patch:
            patch.setattr(set_feed, name, die)
            with pytest.raises(Killed):
                tick(shop)
        assert keys(shop) == []
    assert (follow, keys_of) == (set_feed._follow, set_feed._keys_of)
    # The keys were read before the second kill, and are not read again.
    monkeypatch.setattr(set_feed, "_keys_of", die)
    assert tick(shop) == ([["ink", "pen"]], {})


def test_many_batches_with_the_same_keys_are_read_in_several_jobs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(shop)
    monkeypatch.setattr(set_feed, "MOST_KEYS", 3)
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        shop.sell(day, [(1, "pen", "1"), (2, "ink", "2")])
    assert tick(shop) == ([["ink", "pen"]], {})
    # One batch alone has more than a set may have.
    shop.sell("2026-11-04", [(number, f"p{number}", "1") for number in range(4)])
    assert "gives more than 3 keys" in str(tick(shop)[1])
    assert keys(shop) == ["ink", "pen"]


def test_a_rollback_takes_a_key_back_where_that_is_declared_and_forward_brings_it_again(shop: Shop) -> None:
    declare(shop, removal="WITHDRAW")
    first = shop.sell("2026-11-01", FIRST).batch_id
    second = shop.sell("2026-11-01", [(1, "pen", "1.00"), (2, "cap", "1.00")]).batch_id
    tick(shop)
    assert keys(shop) == ["cap", "pen"]
    assert shop.run("keys", "add", f"{shop.db}.products", "by hand").exit_code == 0
    take_back(shop, "2026-11-01", first)
    tick(shop)
    # What no batch has ever brought is not the data's to take away.
    assert keys(shop) == ["by hand", "ink", "pen"]
    take_back(shop, "2026-11-01", second)
    tick(shop)
    assert keys(shop) == ["by hand", "cap", "pen"]


def test_keys_are_kept_unless_it_is_said_and_no_person_removes_what_the_data_have(shop: Shop) -> None:
    declare(shop)
    first = shop.sell("2026-11-01", FIRST).batch_id
    tick(shop)
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    tick(shop)
    assert keys(shop) == ["ink", "pen"]
    error = shop.run("keys", "remove", f"{shop.db}.products", "pen").exception
    assert isinstance(error, VarveError)
    assert "which has pen: the next tick would add them again. Nothing was removed" in str(error)
    assert shop.run("keys", "remove", f"{shop.db}.products", "ink").exit_code == 0
    tick(shop)
    assert keys(shop) == ["pen"]
    take_back(shop, "2026-11-01", first)
    tick(shop)
    assert keys(shop) == ["ink", "pen"]


def test_values_that_are_no_keys_are_told_with_their_place_and_stop_no_others(shop: Shop) -> None:
    declare(shop)
    rows = [(1, "pen", "1.00"), (2, None, "1.00"), (3, "", "1.00"), (4, "a\tb", "1.00"), (5, "x" * 300, "1.00"),
            (6, "a|b~c/d%", "1.00"), (7, "👋", "1.00")]  # fmt: skip
    shop.sell("2026-11-01", rows)  # type: ignore[arg-type]
    runs, problems = tick(shop)
    assert [sorted(run) for run in runs] == [["a|b~c/d%", "pen", "👋"]]
    (message,) = problems.values()
    assert f"{shop.assets.name}/of_product.sql:5:63: {shop.db}.sales has values that are no keys" in message
    assert "NULL is no key; write WHERE ... IS NOT NULL" in message or "and 1 more" in message
    declare(shop, f"{NAMED} AND LENGTH(product) BETWEEN 1 AND 200 AND product NOT LIKE '%\t%'")
    assert tick(shop)[1] == {}


def test_a_value_that_a_metastore_cannot_tell_from_a_key_is_told_and_stops_no_others(shop: Shop) -> None:
    declare(shop)
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    assert tick(shop) == ([["pen"]], {})
    shop.sell("2026-11-02", [(2, "pen ", "1.00"), (3, "ink", "1.00")])
    runs, problems = tick(shop)
    assert [key for run in runs for key in run if key != "pen"] == ["ink"]
    (message,) = problems.values()
    assert "the keys 'pen' and 'pen ' differ in blanks at the end alone" in message
    assert keys(shop) == ["ink", "pen"]


def test_two_ticks_at_once_come_to_the_same(shop: Shop) -> None:
    from concurrent.futures import ThreadPoolExecutor

    declare(shop)
    shop.sell("2026-11-01", FIRST)
    shop.asset("of_product")
    project = Project.find(shop.root)
    graph = load_project(project).graph

    def look(_: int) -> dict[str, str]:
        with closing(shop.workbench.catalog().connection) as connection, open_instance(project.settings) as instance:
            return set_feed.feed(connection, instance, graph, project.settings).problems

    with ThreadPoolExecutor(2) as both:
        assert list(both.map(look, range(2))) == [{}, {}]
    assert keys(shop) == ["ink", "pen"]
    with closing(shop.workbench.catalog().connection) as connection:
        rows = connection.execute("select keys from varve.set_keys where dataset = %s", (f"{shop.db}.sales",))
        assert rows.fetchall() == [(["ink", "pen"],)]


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        ("SELECT product FROM shop.of_product", ":5", "would be filled by itself"),
        ("SELECT product FROM shop.again", ":5", "again reads"),
        (
            "SELECT id FROM shop.sales",
            ":5",
            "id is INT, and the partition column of p is STRING; write CAST(",
        ),
        ("SELECT prodct FROM shop.sales", ":5", "has no column prodct. Did you mean product?"),
        ("SELECT NULL FROM shop.sales", ":5", "NULL is no key of a set"),
        ("SELECT product, id FROM shop.sales", ":5", "found 2 columns; write FROM (SELECT DISTINCT"),
        ("SELECT MAX(product) FROM shop.sales", ":5", "found MAX(product), which is not of one row"),
        ("SELECT product FROM shop.sales LIMIT 3", ":5", "found LIMIT"),
        ("SELECT product FROM shop.sale", ":5", "nobody declares"),
        ("SELECT product FROM shop.sales WHERE day < CURRENT_DATE()", ":5", "CURRENT_DATE gives another value"),
        ("", ":5", "no query between the parentheses"),
    ],
)
def test_a_query_that_cannot_fill_a_set_is_a_mistake_with_its_place(
    shop: Shop, query: str, place: str, message: str
) -> None:
    shop.sql("sales", "EXTERNAL;", columns=SALES)
    again = OF_PRODUCT.replace("shop.of_product", "shop.again").replace(" FROM ({query}){removal}", "")
    again = (
        again.replace("shop.products", "others").replace("shop.sales", "shop.of_product").replace("price", "revenue")
    )
    (shop.assets / "again.sql").write_text(again.replace("shop.", f"{shop.db}.").lstrip())
    declare(shop, query)
    error = shop.run("check", "--no-spark")
    text = f"{error.output}{error.exception}"
    assert f"of_product.sql{place}" in text
    assert message in text.replace("\n", " ")


def test_a_graph_says_that_its_rules_of_a_set_are_an_upper_bound(shop: Shop) -> None:
    declare(shop)
    text = """
CREATE DATASET shop.of_both
  COMMENT 'For a test.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, product STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', TIMEZONE 'UTC'), p IN DYNAMIC 'shop.products'
  LET today = CAST(t AS DATE)
  INSERT (day = today, product = p)
AS
SELECT SUM(price) AS revenue FROM shop.sales s WHERE s.day = today AND s.product = p;
"""
    (shop.assets / "of_both.sql").write_text(text.replace("shop.", f"{shop.db}.").lstrip())
    shop.asset("of_both")
    unknown = "the keys of a set are not known when the project is loaded"
    note = f"(at most: {unknown}; `varve show` of a partition says which)"
    edges = [line for line in shop.run("graph").output.splitlines() if line.startswith("  <- ")]
    assert sorted(edges) == [f"  <- {shop.db}.sales   day: every key", f"  <- {shop.db}.sales   day: every key {note}"]
    reads = {
        each["name"]: each["reads"][0]["why_wider"]
        for each in json.loads(shop.run("graph", "--format", "json").output)["datasets"]
        if each["reads"]
    }
    assert reads == {
        f"{shop.db}.of_product": None,
        f"{shop.db}.of_both": unknown,
    }
