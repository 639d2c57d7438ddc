"""A new generation that lacks what readers have: nobody is moved without a word; and the way back and forth again."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

import varve
from tests.cli.test_environments import DAYS, REVENUE, Store, shop, shop_at_rest  # noqa: F401 - fixtures
from varve.catalog.code.generations import Generations
from varve.catalog.environments.held import held
from varve.model.errors import BadInput, VarveError
from varve.services.postgres import connect
from varve.stores.environments.promotion import NotClosed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

# Of the six days before today the first four are in a window that is over, and the others in one that is not.
BY_FOURS = """CREATE DATASET {db}.totals
  COMMENT 'For a test.'
  STORED IN WAREHOUSE
  PARTITIONED BY (first DATE)
  FOR t IN TIMESERIES(INTERVAL 4 DAYS, START '{start}', TIMEZONE 'UTC')
  LET since = CAST(t AS DATE)
  INSERT (first = since)
AS SELECT SUM(revenue.cents) AS cents FROM {db}.revenue WHERE revenue.day BETWEEN since AND DATE_ADD(since, 3);
"""
BY_TILL = """CREATE DATASET {db}.sales (product STRING NOT NULL, cents BIGINT NOT NULL)
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE, till STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC'), till IN ('a')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = 'sales_{{day:%Y-%m-%d}}_{{till}}.csv');
"""
TAKINGS = """CREATE DATASET {db}.takings (cents BIGINT)
  COMMENT 'One row per sale.'
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC'), store IN ('a', 'b')
  LET day = CAST(t AS DATE)
EXTERNAL;
"""
BY_STORE = """CREATE DATASET {db}.sums
  COMMENT 'For a test.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC'), s IN ('a', 'b')
  LET today = CAST(t AS DATE)
  INSERT (day = today, store = s)
AS SELECT SUM(cents) AS cents FROM {db}.takings WHERE takings.day = today AND takings.store = s;
"""
BY_DAY = """CREATE DATASET {db}.sums
  COMMENT 'For a test.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS SELECT SUM(cents) AS cents FROM {db}.takings WHERE takings.day = today;
"""
RENAMED = REVENUE.replace("AS cents", "AS amount")


def assets(shop: Store) -> Path:  # noqa: F811
    return shop.root / f"{shop.db}_assets"


def by_fours(shop: Store) -> None:  # noqa: F811
    (assets(shop) / "totals.sql").write_text(BY_FOURS.format(db=shop.db, start=DAYS[0]), encoding="utf-8")


def rejected(shop: Store) -> list[dict[str, Any]]:  # noqa: F811
    """The arrivals of this project that are not taken: the catalog has those of other tests."""
    return [each for each in shop.json("plan")["rejected"] if each["dataset"].startswith(f"{shop.db}.")]


def test_where_a_window_is_open_readers_are_moved_only_if_that_is_meant(shop: Store) -> None:  # noqa: F811
    before = shop.totals()
    by_fours(shop)
    looked = shop.json("evolve", "shop.totals", "--dry-run")
    assert [each for each in shop.json("env", "list") if shop.db in each["name"]] == []
    with pytest.raises(NotClosed, match=r"readers would miss \d+ partitions? .* with --incomplete"):
        shop.varve("evolve", "shop.totals")
    assert shop.totals() == before
    done = shop.json("evolve", "shop.totals", "--incomplete")
    assert shop.rows("select first from shop.totals") == [(DAYS[0],)]
    assert looked["due"][f"{shop.db}.totals"] == [f"first={DAYS[0]}"]
    lacking = done["lacking"][f"{shop.db}.totals"]
    assert looked["lacking"][f"{shop.db}.totals"] == lacking
    assert list(lacking) == [f"day={day}" for day in DAYS[4:]]
    assert all("from which nothing of the new generation is made" in reason for reason in lacking.values())
    assert [each for each in shop.json("env", "list") if shop.db in each["name"]] == []


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")
def test_a_partition_that_waits_is_named_and_comes_with_the_others_later(shop_at_rest: Store) -> None:  # noqa: F811
    shop, folder = shop_at_rest, shop_at_rest.root / "landing" / shop_at_rest.db / "takings"  # noqa: F811
    for name in ("totals", "trailing", "revenue", "sales"):
        (assets(shop) / f"{name}.sql").unlink()
    (assets(shop) / "takings.sql").write_text(TAKINGS.format(db=shop.db, start=DAYS[0]))
    (assets(shop) / "sums.sql").write_text(BY_STORE.format(db=shop.db, start=DAYS[0]))
    folder.mkdir(parents=True)
    for day, store, cents in ((0, "a", 1), (0, "b", 20), (1, "a", 300)):
        (folder / f"{DAYS[day]}|{store}.csv").write_text(f"cents\n{cents}\n")
    shop.run_due()
    sums = "select day, sum(cents)::bigint from shop.sums group by 1 order by 1"
    before = shop.rows(sums)
    assert before == [(DAYS[0], 21), (DAYS[1], 300)]

    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[0]))
    looked = shop.json("evolve", "shop.sums", "--dry-run")
    assert looked["due"] == {f"{shop.db}.sums": [f"day={DAYS[0]}"]}
    assert looked["waiting"].keys() == {f"{shop.db}.sums"}
    # What waits may come; what is of no window of the new series never does.
    assert looked["lacking"] == {}
    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[1]))
    looked = shop.json("evolve", "shop.sums", "--dry-run")
    assert set(looked["lacking"].pop(f"{shop.db}.sums")) == {f"day={DAYS[0]}/store={store}" for store in "ab"}
    assert looked["lacking"] == {}
    told = shop.varve("evolve", "shop.sums", "--dry-run")
    assert f"{shop.db}.sums: readers have, and would lose: 2 partitions, such as day={DAYS[0]}/store=a: it was" in told
    assert "Where readers have rows of that, they are moved only with --incomplete." in told
    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[0]))
    for _ in range(2):
        with pytest.raises(NotClosed, match=rf"readers would miss 1 partition \({shop.db}.sums day={DAYS[1]}: missing"):
            shop.varve("evolve", "shop.sums")
        assert shop.rows(sums) == before
    name = f"evolve_{shop.db}_sums"
    # Whoever has still the declaration of before does not throw away what somebody else has begun.
    (assets(shop) / "sums.sql").write_text(BY_STORE.format(db=shop.db, start=DAYS[0]))
    with pytest.raises(VarveError, match=rf"To give it up: varve env drop {name}"):
        shop.varve("evolve", "shop.sums")
    # Nor does a look change what was begun, whatever else is declared here.
    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[0]).replace("AS cents", "AS amount"))
    with connect(shop.settings, application="a look") as connection:
        begun = Generations(connection).of_environment(name)
        shop.varve("evolve", "shop.sums", "--dry-run")
        assert Generations(connection).of_environment(name) == begun
        with held(connection, name), pytest.raises(VarveError, match="another command has the same partitions in hand"):
            shop.varve("evolve", "shop.sums")
    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[0]))
    assert shop.json("promote", name, "--dry-run")["lacking"][f"{shop.db}.sums"].keys() == {f"day={DAYS[1]}"}
    number = shop.json("promote", name, "--dry-run", "--incomplete")["number"]
    # What it waited for comes; what was looked at is not what would be promoted now.
    (folder / f"{DAYS[1]}|b.csv").write_text("cents\n4000\n")
    shop.run_due()
    with pytest.raises(VarveError, match="was not promoted, and nothing was changed"):
        shop.varve("apply", str(number))
    assert shop.rows(sums) == before
    done = shop.json("evolve", "shop.sums")
    after = [(DAYS[0], 21), (DAYS[1], 4300)]
    assert shop.rows(sums) == after
    assert shop.run_due() == []

    # There and back, and there again: what was withdrawn by that has no hold of its own.
    (assets(shop) / "sums.sql").write_text(BY_STORE.format(db=shop.db, start=DAYS[0]))
    shop.varve("rollback", "--run", done["run"], "--withdraw")
    assert shop.rows(sums) == [(DAYS[0], 21), (DAYS[1], 300)]
    (assets(shop) / "sums.sql").write_text(BY_DAY.format(db=shop.db, start=DAYS[0]))
    shop.varve("evolve", "shop.sums")
    assert (shop.rows(sums), shop.run_due()) == (after, [])


def test_files_that_are_cut_otherwise_have_to_bring_as_many_rows(shop: Store) -> None:  # noqa: F811
    before = shop.totals()
    (assets(shop) / "sales.sql").write_text(BY_TILL.format(db=shop.db, start=DAYS[0]), encoding="utf-8")
    with pytest.raises(NotClosed, match=r"sales: it has 0 rows where readers have 12"):
        shop.varve("evolve", "shop.sales")
    assert shop.totals() == before
    folder = shop.root / "landing" / shop.db / "sales"
    for file in sorted(folder.iterdir()):
        file.rename(file.with_name(f"{file.stem}_a.csv"))
    assert shop.run_due() == []
    shop.varve("evolve", "shop.sales")
    assert shop.totals() == before
    assert shop.run_due() == []


def test_what_was_rolled_back_can_go_forward_again(shop: Store, tmp_path: Path) -> None:  # noqa: F811
    (assets(shop) / "totals.sql").unlink()
    (assets(shop) / "trailing.sql").unlink()
    rows = "select day, sum({})::bigint from shop.revenue group by 1 order by 1"
    shop.sql("revenue", REVENUE, store="WAREHOUSE")
    done = shop.json("evolve", "shop.revenue")
    before = shop.rows(rows.format("cents"))
    for _ in range(2):
        shop.sql("revenue", RENAMED, store="LAKE")
        done = shop.json("evolve", "shop.revenue")
        assert done["partitions"] == {f"{shop.db}.revenue": len(DAYS)}
        shop.varve("rollback", "--run", done["run"])
        assert shop.rows(rows.format("cents")) == before
        with pytest.raises(VarveError, match=r"is taken back already.*Nothing was changed"):
            shop.varve("rollback", "--run", done["run"])
    # A correction that was taken back does not keep what reads it from another generation either.
    shop.sql("revenue", REVENUE, store="WAREHOUSE")
    assert shop.run_due() == []
    file = tmp_path / f"sales_{DAYS[0]}.csv"
    file.write_text("product,cents\npen,9000\n")
    corrected = shop.json("correct", "shop.sales", str(file))
    shop.varve("rollback", "--run", corrected["run"])
    assert shop.rows(rows.format("cents")) == before
    shop.sql("revenue", REVENUE.replace("AS cents", "AS pennies"), store="WAREHOUSE")
    renamed = REVENUE.replace("AS cents", "AS pennies")
    shop.sql("revenue", renamed.replace("SELECT product,", "SELECT product, 1 AS one,"), store="LAKE")
    shop.varve("evolve", "shop.revenue")
    shop.sql("revenue", renamed, store="WAREHOUSE")
    shop.varve("evolve", "shop.revenue")
    assert shop.rows(rows.format("pennies")) == before


def test_a_corrected_file_stays_taken_where_its_columns_are_renamed_before_a_sensor_looks(
    shop: Store, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    file = tmp_path / f"sales_{DAYS[0]}.csv"
    file.write_text("product,cents\npen,9000\n")
    shop.varve("correct", "shop.sales", str(file))
    corrected = shop.totals()
    declared, renamed = assets(shop) / "sales.sql", "article STRING NOT NULL RENAMED FROM product"
    declared.write_text(declared.read_text().replace("product STRING NOT NULL", renamed))
    shop.sql("revenue", REVENUE.replace("product", "article"))
    shop.varve("evolve", "shop.sales")
    assert shop.run_due() == []
    assert rejected(shop) == []
    assert shop.totals() == corrected
    # Content that was never taken is what it was before: refused, and seen.
    file.write_text("product,cents\npen,9001\n")
    (shop.root / "landing" / shop.db / "sales" / file.name).write_text(file.read_text())
    assert shop.run_due() == []
    (arrival,) = rejected(shop)
    assert "the columns are not the declared ones" in arrival["reason"]


def test_batches_of_another_generation_and_of_no_declaration_can_be_pinned_and_let_go(shop: Store) -> None:  # noqa: F811
    by_fours(shop)
    shop.varve("evolve", "shop.totals", "--incomplete")
    old = f"day={DAYS[0]}"
    (batch,) = shop.json("history", "shop.totals", old)
    assert batch["state"] == "retired"
    pinned = shop.json("pin", "shop.totals", old, "--batch", str(batch["batch_id"]), "--reason", "an audit")
    assert [each["partition"] for each in pinned] == [old]
    (assets(shop) / "totals.sql").unlink()
    with pytest.raises(VarveError, match="somebody has pinned 1 batch"):
        shop.varve("drop", "shop.totals")
    assert [each["owner"] for each in shop.json("history", "shop.totals", old)[0]["pins"]] == [pinned[0]["owner"]]
    assert shop.json("unpin", "shop.totals") == {"unpinned": 1, "snapshots": []}
    shop.varve("drop", "shop.totals")
    with pytest.raises(VarveError, match="there is no dataset"):
        shop.varve("history", "shop.totals")


def test_a_look_back_that_is_refused_keeps_nothing_from_the_sweep(shop: Store) -> None:  # noqa: F811
    before = dt.datetime.now(dt.UTC)
    (assets(shop) / "totals.sql").unlink()
    (assets(shop) / "trailing.sql").unlink()
    shop.sql("revenue", RENAMED)
    shop.varve("evolve", "shop.revenue")
    with varve.open(shop.project) as reader, pytest.raises(BadInput, match="of another generation than it is declared"):
        reader.table(f"{shop.db}.revenue", as_of=before)
    assert all(batch["pins"] == [] for batch in shop.json("history", "shop.revenue"))


def test_a_value_that_no_narrower_type_holds_is_named_with_its_partition(shop: Store) -> None:  # noqa: F811
    shop.send(DAYS[3], ("pen", 3_000_000_000))
    shop.run_due()
    declared = assets(shop) / "sales.sql"
    declared.write_text(declared.read_text().replace("cents BIGINT", "cents INT"))
    with pytest.raises(BadInput, match=rf"cents: 1 value, such as 3000000000 of day={DAYS[3]}, which is no INT"):
        shop.varve("evolve", "shop.sales")
    # The plan says which command goes, and not `varve apply`, which cannot do it.
    told = " ".join(shop.varve("plan").split())
    assert f"`varve apply` cannot do that. `varve evolve {shop.db}.sales` builds it" in told
    # Of the others it can, and is told which those are.
    shop.only_dearer_than(150)
    told = " ".join(shop.varve("plan").split())
    (apply,) = re.findall(rf"`varve (apply \d+ {shop.db}.revenue)` does as they declare", told)
    assert f"{shop.db}.revenue: deployed" in shop.varve(*apply.split())


def retyped(shop: Store) -> None:  # noqa: F811
    """Cents become INT, which older files of the lake do not follow; what reads them has the same code and rows."""
    declared = assets(shop) / "sales.sql"
    declared.write_text(declared.read_text().replace("cents BIGINT", "cents INT"))


def test_readers_whose_code_is_the_same_go_back_and_forth_too(shop: Store) -> None:  # noqa: F811
    before = shop.totals()
    for _ in range(2):
        shop.sql("revenue", REVENUE, store="WAREHOUSE")
        done = shop.json("evolve", "shop.revenue")
        assert (shop.totals(), shop.run_due()) == (before, [])
        # There is no code to revert: the way back is another one, and is said.
        with pytest.raises(VarveError, match=r"moved .*revenue to another .* varve rollback --run promote-"):
            shop.varve("revert", done["run"])
        shop.sql("revenue", REVENUE)
        # It moved other datasets too, which would go back unasked; of none of that name it published anything.
        with pytest.raises(VarveError, match=r"revenue to another declaration together with .*totals.*goes back whole"):
            shop.varve("rollback", "shop.revenue", "--run", done["run"])
        with pytest.raises(VarveError, match=r"has published nothing of shop\.revenu;"):
            shop.varve("rollback", "shop/revenu", "--run", done["run"])
        with pytest.raises(VarveError, match="'' is not a promotion that was made"):
            shop.varve("revert", "")
        with pytest.raises(VarveError, match="no run whose id begins with ''"):
            shop.varve("rollback", "--run", "")
        shop.varve("rollback", "--run", done["run"])
        assert (shop.totals(), shop.run_due()) == (before, [])


def test_a_file_that_comes_again_before_the_move_is_taken_after_it(shop: Store) -> None:  # noqa: F811
    before = shop.totals()
    retyped(shop)
    shop.send(DAYS[0], ("pen", 7))
    assert shop.run_due() == []
    shop.varve("evolve", "shop.sales")
    assert shop.totals() == before
    shop.run_due()
    assert shop.totals() == before | {DAYS[0]: 7}


def test_a_file_that_production_has_taken_while_it_was_built_comes_with_it(shop: Store) -> None:  # noqa: F811
    before, name = shop.totals(), f"n{shop.db[1:]}"
    old = (assets(shop) / "sales.sql").read_text()
    retyped(shop)
    shop.varve("env", "create", name)
    shop.varve("env", "run", name)
    (assets(shop) / "sales.sql").write_text(old)
    shop.send(DAYS[0], ("pen", 7))
    shop.run_due()
    after = before | {DAYS[0]: 7}
    assert shop.totals() == after
    retyped(shop)
    shop.varve("promote", name)
    assert (shop.totals(), shop.run_due()) == (after, [])


def test_a_correction_that_was_taken_back_stays_so_in_the_next_generation(
    shop: Store, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    before, file = shop.totals(), tmp_path / f"sales_{DAYS[0]}.csv"
    file.write_text("product,cents\npen,9000\n")
    done = shop.json("correct", "shop.sales", str(file))
    shop.varve("rollback", "--run", done["run"])
    old = (assets(shop) / "sales.sql").read_text()
    retyped(shop)
    run = shop.json("evolve", "shop.sales")["run"]
    assert (shop.totals(), shop.run_due(), shop.totals()) == (before, [], before)
    # And where that generation is taken back in its turn.
    (assets(shop) / "sales.sql").write_text(old)
    shop.varve("rollback", "--run", run)
    assert (shop.totals(), shop.run_due(), shop.totals()) == (before, [], before)


def test_a_type_that_was_widened_and_is_narrow_again_is_another_generation(shop: Store) -> None:  # noqa: F811
    before, old = shop.totals(), (assets(shop) / "sales.sql").read_text()
    retyped(shop)
    shop.varve("evolve", "shop.sales")
    # INT widens to BIGINT within the generation that began with INT.
    (assets(shop) / "sales.sql").write_text(old)
    assert shop.json("evolve", "shop.sales")["run"] is None
    number = shop.json("plan")["changes"]["number"]
    shop.varve("apply", str(number), f"{shop.db}.sales", "--rebuild")
    shop.run_due()
    retyped(shop)
    assert shop.json("evolve", "shop.sales")["rewritten"] == {f"{shop.db}.sales": len(DAYS)}
    assert (shop.totals(), shop.run_due()) == (before, [])


def test_two_files_that_declare_one_dataset_stop_nothing_else(shop: Store) -> None:  # noqa: F811
    text = (assets(shop) / "trailing.sql").read_text()
    (assets(shop) / "trailing_copy.sql").write_text(text)
    shop.send(DAYS[0], ("pen", 7))
    assert {line.split()[0] for line in shop.run_due()} == {"sales", "revenue", "totals"}
    assert shop.totals()[DAYS[0]] == 7


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")
def test_an_environment_may_go_over_to_other_partitions_and_its_iceberg_table_goes_with_it(
    shop_at_rest: Store,  # noqa: F811
) -> None:
    shop, folder = shop_at_rest, shop_at_rest.root / "landing" / shop_at_rest.db / "takings"  # noqa: F811
    for file in ("totals", "trailing", "revenue", "sales"):
        (assets(shop) / f"{file}.sql").unlink()
    (assets(shop) / "takings.sql").write_text(TAKINGS.format(db=shop.db, start=DAYS[0]))
    in_the_lake = [text.replace("WAREHOUSE", "LAKE") for text in (BY_STORE, BY_DAY)]
    by_store, by_day = (text.format(db=shop.db, start=DAYS[0]) for text in in_the_lake)
    (assets(shop) / "sums.sql").write_text(by_store)
    folder.mkdir(parents=True)
    for store, cents in (("a", 1), ("b", 20)):
        (folder / f"{DAYS[0]}|{store}.csv").write_text(f"cents\n{cents}\n")
    shop.run_due()
    name = f"n{shop.db[1:]}"
    shop.varve("env", "create", name)

    def rows() -> list[tuple[Any, ...]]:
        tables = shop.json("snapshot", "--env", name)
        (shown,) = [each for each in tables if each["namespace"].startswith(shop.db) and each["table"] == "sums"]
        table = StaticTable.from_metadata(shown["metadata_location"])
        return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())

    (assets(shop) / "sums.sql").write_text(by_store.replace("SUM(cents)", "SUM(cents) * 2"))
    shop.varve("env", "run", name)
    assert rows() == [(2, DAYS[0], "a"), (40, DAYS[0], "b")]
    (assets(shop) / "sums.sql").write_text(by_day)
    assert shop.json("env", "run", name)["computed"] == {f"{shop.db}.sums": 1}
    assert rows() == [(21, DAYS[0])]
    (assets(shop) / "sums.sql").write_text(by_store.replace("SUM(cents)", "SUM(cents) * 3"))
    shop.varve("env", "run", name)
    assert rows() == [(3, DAYS[0], "a"), (60, DAYS[0], "b")]
