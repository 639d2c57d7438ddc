# ruff: noqa: F811 - fixtures
"""`varve correct`: a corrected file and all that follows from it become current at once, file and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.test_environments import DAYS, Store, name_of, reader, shop, shop_at_rest  # noqa: F401
from varve.catalog.environments.held import held
from varve.cli.environments import promotions
from varve.model.errors import BadInput, PublishTimeout, VarveError
from varve.services.postgres import connect
from varve.sources.landing import corrections
from varve.stores.environments.promoter import Promoter
from varve.stores.warehouse import publish

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
CORRECTED = "product,cents\npen,100\nink,9000\n"
TAKINGS = """CREATE DATASET {db}.takings (cents BIGINT)
  COMMENT 'What a store took on a day.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC'), store IN ('a/b', '/', '%2F')
  LET day = CAST(t AS DATE)
EXTERNAL;
"""
SUMS = "select (select sum(cents) from shop.totals)::bigint, (select sum(cents) from shop.trailing)::bigint"

TILLS = """CREATE DATASET {db}.tills (cents BIGINT)
  COMMENT 'What a till took on a day.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE, till STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{start}', TIMEZONE 'UTC'), till IN DYNAMIC '{db}_tills'
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing', files = '{{till}}/{{day}}.csv');
"""

BY_PRODUCT = """CREATE DATASET {db}.by_product
  COMMENT 'What was ever taken for a product.'
  STORED IN WAREHOUSE
  PARTITIONED BY (product STRING)
  FOR p IN DYNAMIC '{db}_products' FROM (SELECT DISTINCT product FROM {db}.sales)
  INSERT (product = p)
  ALLOW FULL SCAN OF {db}.sales
  WAIT AT LEAST 1
AS SELECT CAST(SUM(sales.cents) AS BIGINT) AS cents FROM {db}.sales WHERE sales.product = p;
"""


def corrected(folder: Path, text: str = CORRECTED, name: str = "") -> str:
    file = folder / (name or f"sales_{DAYS[0]}.csv")
    file.write_text(text)
    return str(file)


def landed(shop: Store) -> Path:
    return shop.root / "landing" / shop.db / "sales" / f"sales_{DAYS[0]}.csv"


def batches(shop: Store) -> int:
    count: int = shop.rows("select count(*) from varve.batch")[0][0]
    return count


def test_readers_of_two_views_see_the_state_before_and_then_the_one_after(shop: Store, tmp_path: Path) -> None:
    before, seen = shop.totals(), list[tuple[int, int]]()
    sums = shop.rows(SUMS)[0]
    shown = shop.varve("correct", "shop.sales", corrected(tmp_path), "--dry-run")
    assert "1 partition of" in shown
    assert (shop.totals(), shop.rows(SUMS)[0]) == (before, sums)
    with reader(shop, seen):
        done = shop.json("correct", "shop.sales", corrected(tmp_path))
    assert {name.split(".")[1]: count for name, count in done["computed"].items()} == {
        "revenue": 1, "totals": 1, "trailing": 3,
    }  # fmt: skip
    assert {name.split(".")[1]: len(paths) for name, paths in done["partitions"].items()} == {
        "sales": 1, "revenue": 1, "totals": 1, "trailing": 3,
    }  # fmt: skip
    assert shop.totals() == before | {DAYS[0]: 9_100}
    assert set(seen) == {sums, shop.rows(SUMS)[0]}
    # Production has the file, and computes nothing of it again.
    assert landed(shop).read_text() == CORRECTED
    count = batches(shop)
    assert shop.run_due() == []
    assert batches(shop) == count
    assert [each for each in shop.json("env", "list") if each["name"].startswith("correction_")] == []
    (history,) = shop.rows(
        f"select reason from varve.publish where run_id = '{done['run']}' and dataset = '{shop.db}.totals'"
    )
    assert history == (f"corrected: {shop.db}.sales day={DAYS[0]}",)

    # Typed again, as after a kill at the very end: there is nothing to go back from.
    again = shop.json("correct", "shop.sales", corrected(tmp_path))
    assert (again["run"], again["partitions"], again["computed"]) == (None, {}, {})
    assert "Nothing differs from what is current" in shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert shop.rows("select count(*) from shop.totals") == [(len(DAYS),)]

    # The way back: the file stays where it is, and no run takes it again until it changes.
    shop.varve("rollback", "--run", done["run"])
    assert shop.totals() == before
    assert shop.run_due() == []
    # Another correction by the same file is one again.
    assert shop.json("correct", "shop.sales", corrected(tmp_path))["run"] is not None
    assert shop.totals() == before | {DAYS[0]: 9_100}


def test_a_partition_of_json_lines_is_corrected_by_json_lines_whatever_its_key_is(
    shop_at_rest: Store, tmp_path: Path
) -> None:
    shop, folder = shop_at_rest, shop_at_rest.root / "landing" / shop_at_rest.db / "takings"
    (shop.root / f"{shop.db}_assets" / "takings.sql").write_text(TAKINGS.format(db=shop.db, start=DAYS[0]))
    folder.mkdir(parents=True)
    # All stores of a day, so that they are one run.
    for name in ("a%2Fb", "%2F", "%252F"):
        (folder / f"{DAYS[0]}|{name}.jsonl").write_text('{"cents": 1}\n')
    shop.run_due()
    file = tmp_path / "fixed.jsonl"
    for cents, store in ((20, "a/b"), (300, "%2F")):
        file.write_text(f'{{"cents": {cents}}}\n')
        shop.varve("correct", "shop.takings", str(file), f"day={DAYS[0]}", f"store={store}")
    rows = shop.rows("select store, cents from shop.takings order by cents")
    assert rows == [("/", 1), ("a/b", 20), ("%2F", 300)]
    assert {path.name.removeprefix(f"{DAYS[0]}|") for path in folder.iterdir()} == {
        "%252F.jsonl", "%2F.jsonl", "a%2Fb.jsonl",
    }  # fmt: skip
    assert shop.run_due() == []


def test_a_file_of_a_folder_that_is_no_key_of_a_set_is_refused_by_its_key(shop_at_rest: Store, tmp_path: Path) -> None:
    """Any folder might be a key: what lies in `downloads` is not of a till of that name."""
    shop = shop_at_rest
    (shop.root / f"{shop.db}_assets" / "tills.sql").write_text(TILLS.format(db=shop.db, start=DAYS[0]))
    shop.varve("keys", "add", f"{shop.db}_tills", "north")
    for name in ("downloads", "north"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{DAYS[0]}.csv").write_text("cents\n20\n")
    lost = str(tmp_path / "downloads" / f"{DAYS[0]}.csv")
    for words in ([lost], [lost, f"day={DAYS[0]}", "till=downloads"]):
        with pytest.raises(BadInput, match=r"has no partition day=.*/till=downloads, as no dynamic set has such a key"):
            shop.varve("correct", "shop.tills", *words)
    shop.varve("correct", "shop.tills", str(tmp_path / "north" / f"{DAYS[0]}.csv"))
    assert shop.rows("select till, cents from shop.tills") == [("north", 20)]
    assert [each for each in shop.json("env", "list") if each["name"].startswith("correction_")] == []


def test_a_file_that_the_partner_has_sent_since_is_not_replaced(shop: Store, tmp_path: Path) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.varve("env", "land", name, "shop.sales", corrected(tmp_path), f"day={DAYS[0]}")
    shop.varve("env", "run", name)
    shop.send(DAYS[0], ("pen", 5))
    sent = landed(shop).read_text()
    # Whether a sensor has seen it or not.
    with pytest.raises(VarveError, match=r"production has another file by now .* Nothing was promoted"):
        shop.varve("promote", name)
    shop.run_due()
    with pytest.raises(VarveError, match=r"production has another file by now .* Nothing was promoted"):
        shop.varve("promote", name)
    assert (shop.totals()[DAYS[0]], landed(shop).read_text()) == (5, sent)
    # Landed once more, it is a correction of what the partner has sent.
    shop.varve("env", "land", name, "shop.sales", corrected(tmp_path), f"day={DAYS[0]}")
    shop.varve("promote", name)
    assert (shop.totals()[DAYS[0]], landed(shop).read_text()) == (9_100, CORRECTED)
    assert shop.run_due() == []


def test_where_the_transaction_fails_after_all_the_file_that_lay_there_lies_there_again(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, file = shop.totals(), landed(shop).read_text()

    def held(*_: object, **__: object) -> None:
        assert landed(shop).read_text() == CORRECTED
        raise PublishTimeout("a reader holds the view")

    with monkeypatch.context() as patched:
        patched.setattr(publish, "replace_views", held)
        with pytest.raises(VarveError, match=r"a reader holds the view. Readers have seen nothing"):
            shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert (shop.totals(), landed(shop).read_text(), shop.run_due()) == (before, file, [])
    # Where there was none, there is none.
    landed(shop).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(publish, "replace_views", held)
        with pytest.raises(VarveError, match="a reader holds the view"):
            shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert not landed(shop).exists()


@pytest.mark.parametrize("moment", [pytest.param("look", marks=pytest.mark.slow), "_changes"])
def test_what_production_takes_meanwhile_is_corrected_all_the_same(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before = shop.totals()
    # The partner has sent it, and no sensor has looked yet: what is corrected is that file.
    landed(shop).write_text("product,cents\npen,100\nink,600\n")
    original = getattr(Promoter, moment)

    def late(promoter: Promoter, *given: object) -> object:
        done = original(promoter, *given)
        monkeypatch.setattr(Promoter, moment, original)
        with monkeypatch.context() as patched:
            patched.delenv("VARVE_ENVIRONMENT", raising=False)
            assert f"sales {DAYS[0]}" in shop.run_due()
        assert shop.totals()[DAYS[0]] == 700
        return done

    monkeypatch.setattr(Promoter, moment, late)
    shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert landed(shop).read_text() == CORRECTED
    assert shop.totals() == before | {DAYS[0]: 9_100}
    assert shop.run_due() == []
    assert shop.totals() == before | {DAYS[0]: 9_100}


def test_what_is_interrupted_between_file_and_commit_is_taken_like_any_file(
    shop: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, file = shop.totals(), landed(shop).read_text()
    whole = corrections._put

    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def killed(file: Path, uri: str) -> None:
        whole(file, uri)
        raise VarveError("killed")

    monkeypatch.setattr(corrections, "_put", disk_full)
    with pytest.raises(VarveError, match=r"cannot be put into the landing folder as .*: No space left .* Nothing was"):
        shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert (shop.totals(), landed(shop).read_text(), shop.run_due()) == (before, file, [])

    monkeypatch.setattr(corrections, "_put", killed)
    with pytest.raises(VarveError, match=r"killed. Readers have seen nothing .* varve promote correction_"):
        shop.varve("correct", "shop.sales", corrected(tmp_path))
    assert (shop.totals(), landed(shop).read_text()) == (before, CORRECTED)
    monkeypatch.setattr(corrections, "_put", whole)
    # Nothing is lost: the sensors take it; again as a correction, nothing is left to do.
    assert f"sales {DAYS[0]}" in shop.run_due()
    assert shop.totals() == before | {DAYS[0]: 9_100}
    assert shop.json("correct", "shop.sales", corrected(tmp_path))["computed"] == {}


class Killed(BaseException):
    """The process ends here, as by kill -9."""


def test_one_that_was_killed_goes_on_when_it_is_typed_again_and_leaves_nothing(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def environments() -> list[str]:
        return [each["name"] for each in shop.json("env", "list") if each["name"].startswith("correction_")]

    def killed(*_: object, **__: object) -> None:
        raise Killed

    before, file = shop.totals(), corrected(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(promotions, "promote_opened", killed)
        with pytest.raises(Killed):
            shop.varve("correct", "shop.sales", file)
    (left,) = environments()
    right_now = pytest.raises(VarveError, match=rf"has the same partitions in hand right now, .* {left}\. Nothing")
    with connect(shop.settings, application="another") as other, held(other, left), right_now:
        shop.varve("correct", "shop.sales", file)
    # Looking leaves what was begun.
    shop.varve("correct", "shop.sales", file, "--dry-run")
    assert (shop.totals(), environments()) == (before, [left])
    # Nobody promotes by a correction what somebody has computed beside it.
    shop.varve("env", "land", left, "shop.sales", file, f"day={DAYS[1]}")
    with pytest.raises(VarveError, match=rf"{left}.* of {shop.db}.sales too, .* to forget it, varve env drop"):
        shop.varve("correct", "shop.sales", file)
    shop.varve("env", "drop", left)
    with monkeypatch.context() as patched:
        patched.setattr(promotions, "promote_opened", killed)
        with pytest.raises(Killed):
            shop.varve("correct", "shop.sales", file)
    done = shop.json("correct", "shop.sales", file)
    assert (done["computed"], {name.split(".")[1]: len(paths) for name, paths in done["partitions"].items()}) == (
        {}, {"sales": 1, "revenue": 1, "totals": 1, "trailing": 3},
    )  # fmt: skip
    assert (shop.totals(), environments(), shop.run_due()) == (before | {DAYS[0]: 9_100}, [], [])


def test_a_broken_file_and_other_code_are_refused_and_leave_nothing(shop: Store, tmp_path: Path) -> None:
    before, file = shop.totals(), landed(shop).read_text()
    with pytest.raises(VarveError, match="was not taken into environment correction_"):
        shop.varve("correct", "shop.sales", corrected(tmp_path, "product,cents\npen,many\n"))
    shop.only_dearer_than(150)
    with pytest.raises(VarveError, match=r"the code here of .*revenue is not the one that is deployed"):
        shop.varve("correct", "shop.sales", corrected(tmp_path))
    shop.only_dearer_than(None)
    assert (shop.totals(), landed(shop).read_text(), shop.run_due()) == (before, file, [])
    assert [each for each in shop.json("env", "list") if each["name"].startswith("correction_")] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["shop.totals", "{file}"], "it has no landing files"),
        (["shop.sals", "{file}"], "there is no dataset"),
        (["shop.sales", "{folder}/none.csv"], "none.csv: there is no such file"),
        (["shop.sales", "day=2026-01-01"], "name the corrected files"),
        (["shop.sales", "{other}"], r"its name is not one of .* Name the partition: varve correct .* day=\.\.\."),
        (["shop.sales", "{other}", "store=Paris"], r"a file is of one partition; name it: day=\.\.\."),
        (["shop.sales", "{file}", "{other}", "day=2026-01-01"], "names one partition, and there are 2 files"),
        (["shop.sales", "{file}", "{twin}"], "are both of"),
    ],
)
def test_words_that_are_no_corrected_file_are_refused(
    shop_at_rest: Store,
    tmp_path: Path,
    words: list[str],
    problem: str,
) -> None:
    (tmp_path / "twin").mkdir()
    places = {
        "file": corrected(tmp_path), "other": corrected(tmp_path, name="fixed.csv"),
        "twin": corrected(tmp_path / "twin"), "folder": str(tmp_path),
    }  # fmt: skip
    with pytest.raises((BadInput, VarveError), match=problem):
        shop_at_rest.varve("correct", *[word.format(**places) for word in words])
    assert shop_at_rest.json("env", "list") == []


def test_partitions_of_keys_that_are_new_to_a_set_come_afterwards_and_that_is_said(
    shop_at_rest: Store, tmp_path: Path
) -> None:
    shop, query = shop_at_rest, "select product, cents::bigint from shop.by_product order by 1"
    (shop.root / f"{shop.db}_assets" / "by_product.sql").write_text(BY_PRODUCT.format(db=shop.db))
    shop.send(DAYS[0], ("pen", 1), ("ink", 2))
    shop.run_due()
    assert shop.rows(query) == [("ink", 2), ("pen", 1)]
    file = corrected(tmp_path, "product,cents\npen,10\nink,20\ncap,40\n")
    said = f"Keys that {shop.db}.sales has not had before come into the set {shop.db}_products afterwards"
    assert said in shop.varve("correct", "shop.sales", file, "--dry-run")
    done = shop.json("correct", "shop.sales", file)
    assert done["sets"] == {f"{shop.db}_products": f"{shop.db}.sales"}
    assert shop.rows(query) == [("ink", 20), ("pen", 10)]
    assert shop.rows("select cents::bigint from shop.totals") == [(70,)]
    shop.run_due()
    assert shop.rows(query) == [("cap", 40), ("ink", 20), ("pen", 10)]
