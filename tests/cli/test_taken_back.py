"""The way back: what a promotion has added, a correction under a name that goes with it, and one that was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.cli.test_environments import DAYS, REVENUE, Store, name_of, shop, shop_at_rest  # noqa: F401 - fixtures
from varve.cli.environments import work
from varve.model.errors import VarveError
from varve.services.spark import open_session
from varve.stores.lake.store import LakeStore

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

pytestmark = pytest.mark.spark

TWICE = "PYTHON '{db}_assets.functions:twice' USING revenue AS (SELECT * FROM {db}.revenue WHERE revenue.day = today);"
FUNCTIONS = "def twice(spark, scope, revenue):\n    return revenue.selectExpr('sum(cents) * 2 as cents')\n"
EXTRA = "AS SELECT SUM(revenue.cents) AS cents FROM {db}.revenue WHERE revenue.day = today GROUP BY revenue.day;"
RENAMED = "article STRING NOT NULL RENAMED FROM product"


def test_a_dataset_that_was_added_is_made_anew_of_what_is_taken_back(shop: Store) -> None:  # noqa: F811
    """With the promoted code here still: the code of the added one is here, and may compute where that is said."""
    before, name = shop.totals(), name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    (shop.root / f"{shop.db}_assets" / "functions.py").write_text(FUNCTIONS)
    shop.sql("twice", TWICE, store="WAREHOUSE", columns="(cents BIGINT)")
    shop.varve("env", "run", name, "--effects")
    shop.varve("promote", name)
    assert shop.totals() == {day: 200 + number for number, day in enumerate(DAYS)}
    run = shop.rows("select run_id from varve.publish where dataset = 'shop.revenue' order by published_at")[-1][0]
    environments = shop.rows("select name from varve.environment")
    with pytest.raises(VarveError, match="the same command with --effects"):
        shop.varve("revert", run)
    # Nothing was computed, and nothing stays behind that a sweep would have to keep batches for.
    assert shop.rows("select name from varve.environment") == environments
    assert shop.totals() == {day: 200 + number for number, day in enumerate(DAYS)}
    back = shop.json("revert", run, "--effects")
    assert back["computed"] == {f"{shop.db}.twice": len(DAYS)}
    assert back["added"] == [f"{shop.db}.twice"]
    assert shop.totals() == before
    twice = dict(shop.rows("select day, cents::bigint from shop.twice"))
    assert twice == {day: 2 * cents for day, cents in before.items()}


@pytest.mark.parametrize("way", ["revert", "evolve"])
def test_a_correction_under_the_new_name_of_a_column_goes_back_behind_the_rename(
    way: str, shop: Store, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    declared = shop.root / f"{shop.db}_assets" / "sales.sql"
    first = declared.read_text()
    declared.write_text(first.replace("product STRING NOT NULL", RENAMED))
    shop.sql("revenue", REVENUE.replace("product", "article"))
    run = shop.json("evolve", "shop.sales")["run"]
    file = tmp_path / f"sales_{DAYS[0]}.csv"
    file.write_text("article,cents\npen,9000\n")
    shop.varve("correct", "shop.sales", str(file))
    corrected = shop.totals()
    assert corrected[DAYS[0]] == 9_000
    declared.write_text(first)
    shop.sql("revenue", REVENUE)
    back = shop.json("revert", run) if way == "revert" else shop.json("evolve", "shop.sales")
    # What the correction was made of is rewritten, and what reads it is computed.
    assert back["computed"] == {f"{shop.db}.revenue": 1, f"{shop.db}.trailing": 2}
    assert shop.totals() == corrected
    assert shop.run_due() == []
    assert shop.json("env", "list") == []
    # A file of the partner, with the name that is declared again.
    shop.send(DAYS[1], ("pen", 5), ("ink", 6))
    shop.run_due()
    assert shop.totals() == corrected | {DAYS[1]: 11}
    # Of what is renamed again, nothing waits that would be made of what is rewritten.
    declared.write_text(first.replace("product STRING NOT NULL", RENAMED.replace("article", "label")))
    shop.sql("revenue", REVENUE.replace("product", "label"))
    looked = shop.json("evolve", "shop.sales", "--dry-run")
    assert (looked["rewritten"], looked["waiting"]) == ({f"{shop.db}.sales": len(DAYS)}, {})
    of_revenue = len(looked["due"].get(f"{shop.db}.revenue", ())) + looked["follows"].get(f"{shop.db}.revenue", 0)
    assert of_revenue == len(DAYS)


class Killed(BaseException):
    """The process ends here, as by kill -9: nothing that comes after it is done."""


@pytest.mark.parametrize("store", ["LAKE", "WAREHOUSE"])
def test_one_that_is_killed_before_it_has_shown_what_it_moved_shows_it_when_it_is_typed_again(
    store: str, shop: Store, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    def rows_of_the_lake() -> int:
        return open_session(shop.settings).table(f"{shop.db}.revenue").count()

    if store == "LAKE":
        shop.sql("revenue", REVENUE, store="WAREHOUSE")
        shop.varve("evolve", "shop.revenue")
    shop.sql("revenue", REVENUE, store=store, also=" AND sales.cents > 0" if store == "WAREHOUSE" else "")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LakeStore, "published", killed)
        patched.setattr(LakeStore, "left", killed)
        with pytest.raises(Killed):
            shop.varve("evolve", "shop.revenue")
    done = shop.json("evolve", "shop.revenue")
    assert (done["reasons"], shop.json("env", "list")) == ([], [])
    if store == "LAKE":
        assert done["shown"] == {f"{shop.db}.revenue": len(DAYS)}
        assert rows_of_the_lake() == 2 * len(DAYS)
    else:
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            rows_of_the_lake()
        # Its code was another one too; what is declared here does not say what that has made.
        run = shop.rows("select run_id from varve.publish where dataset = 'shop.revenue' order by published_at")[-1][0]
        with pytest.raises(VarveError, match=r"was of another generation .* Check out the code before"):
            shop.varve("revert", run)
    assert shop.run_due() == []


def test_a_promotion_and_its_revert_that_are_killed_before_readers_see_them_are_finished_when_typed_again(
    shop: Store, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    def killed(*_: object) -> None:
        raise Killed

    def killing(*words: str) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(LakeStore, "published", killed)
            # A killed process does not clean up either.
            patched.setattr(work, "drop", killed)
            with pytest.raises(Killed):
                shop.varve(*words)

    def cents_of_the_lake() -> dict[dt.date, int]:
        rows = open_session(shop.settings).table(f"{shop.db}.revenue").collect()
        return {day: sum(row.cents for row in rows if row.day == day) for day in DAYS}

    before, dearer, name = cents_of_the_lake(), {day: 200 + number for number, day in enumerate(DAYS)}, name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    shop.varve("env", "run", name)
    killing("promote", name)
    assert cents_of_the_lake() == before
    assert "nothing that production has not" in shop.varve("promote", name)
    assert cents_of_the_lake() == dearer

    run = shop.rows("select run_id from varve.publish where dataset = 'shop.revenue' order by published_at")[-1][0]
    killing("revert", run)
    assert cents_of_the_lake() == dearer
    output = " ".join(shop.varve("revert", run).split())
    assert "is taken back: " in output
    assert "what it had left to do is done now" in output
    assert cents_of_the_lake() == before
    assert [each["name"] for each in shop.json("env", "list")] == [name]
    with pytest.raises(VarveError, match="is taken back already: by promotion"):
        shop.varve("revert", run)
    assert cents_of_the_lake() == before


def test_a_plan_does_not_put_code_back_that_was_replaced_after_it_was_made(shop: Store) -> None:  # noqa: F811
    before, name = shop.totals(), name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    shop.varve("env", "run", name)
    kept = shop.json("promote", name, "--dry-run")["number"]
    other = f"{name}x"
    shop.varve("env", "create", other)
    shop.varve("env", "run", other)
    shop.varve("revert", str(shop.json("promote", other)["number"]))
    assert shop.totals() == before
    with pytest.raises(VarveError, match=f"Is this checkout behind.* varve promote {name} --earlier-code"):
        shop.varve("apply", str(kept))
    assert shop.totals() == before
    # Whoever says that it is meant has a plan that does it.
    told = shop.json("promote", name, "--earlier-code", "--dry-run")["number"]
    assert told != kept
    shop.varve("apply", str(told))
    assert shop.totals() == {day: 200 + number for number, day in enumerate(DAYS)}


def test_a_promotion_is_taken_back_without_what_was_dropped_and_made_again_by_a_rebase(shop: Store) -> None:  # noqa: F811
    before, dearer, name = shop.totals(), {day: 200 + number for number, day in enumerate(DAYS)}, name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    shop.sql("extra", EXTRA, store="WAREHOUSE", columns="(cents BIGINT)")
    shop.varve("env", "run", name)
    first = shop.json("promote", name)["number"]
    (shop.root / f"{shop.db}_assets" / "extra.sql").unlink()
    shop.reload()
    shop.varve("drop", "shop.extra")
    shop.varve("revert", str(first))
    assert shop.totals() == before

    # The environment stands on what it has promoted, which production does not have any more.
    said = " ".join(shop.varve("promote", name).split())
    assert f"Production has other code of {shop.db}.revenue since." in said
    assert f"varve env rebase {name} --merged" in said
    shop.varve("env", "rebase", name, "--merged")
    assert shop.json("env", "run", name)["computed"] == {}
    with pytest.raises(VarveError, match=f"Is this checkout behind.* varve promote {name} --earlier-code"):
        shop.varve("promote", name)
    assert "Is this checkout behind?" in shop.varve("plan")
    assert "Is this checkout behind?" in shop.varve("env", "run", name)
    second = shop.json("promote", name, "--earlier-code")["number"]
    assert shop.totals() == dearer
    with pytest.raises(VarveError, match=f"Go back behind that first: varve revert {second}"):
        shop.varve("revert", str(first))
    shop.varve("revert", str(second))
    assert shop.totals() == before
    with pytest.raises(VarveError, match=f"the code before promotion {first} is in force already"):
        shop.varve("revert", str(first))
    assert shop.totals() == before
