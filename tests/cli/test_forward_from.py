"""ON CODE CHANGE FORWARD FROM: windows before the date keep what earlier code has made of them, whatever is done.

A correction, another generation of the dataset or of what it reads, and the way back: each could give them to the code
of now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.test_environments import DAYS, REVENUE, Store, shop_at_rest  # noqa: F401 - a fixture
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

FORWARD = "ON CODE CHANGE FORWARD FROM '{boundary}'\n"
COLUMNS = "(product STRING, {name} BIGINT{was})"


@pytest.fixture
def shop(shop_at_rest: Store) -> Store:  # noqa: F811
    """Three days of revenue: the first two by the first code, the third by another one, ten times as much."""
    for name in ("totals", "trailing"):
        (shop_at_rest.root / f"{shop_at_rest.db}_assets" / f"{name}.sql").unlink()
    revenue(shop_at_rest, "SUM(sales.cents)")
    for day in DAYS[:2]:
        shop_at_rest.send(day, ("pen", 100))
    shop_at_rest.run_due()
    revenue(shop_at_rest, "SUM(sales.cents) * 10")
    (change,) = changes(shop_at_rest)
    assert (change["kind"], change["needs_decision"], change["stay"]) == ("decided", False, 2)
    assert change["partitions"] == {}
    shop_at_rest.send(DAYS[2], ("pen", 100))
    shop_at_rest.run_due()
    assert made(shop_at_rest) == [100, 100, 1000]
    assert "by earlier code" in shop_at_rest.json("why", "shop.revenue", f"day={DAYS[0]}")["reason"]
    return shop_at_rest


def revenue(shop: Store, amount: str, *, name: str = "cents", was: str = "", product: str = "product",
            store: str = "WAREHOUSE", day: int = 2) -> None:  # fmt: skip
    """Declare revenue: how much, in a column of which name, which was another one."""
    query = REVENUE.replace("SUM(sales.cents) AS cents", f"{amount} AS {name}")
    query = query.replace("SELECT product", f"SELECT {product} AS product").replace(
        "GROUP BY product", f"GROUP BY {product}"
    )
    columns = COLUMNS.format(name=name, was=f" RENAMED FROM {was}" if was else "")
    shop.sql("revenue", FORWARD.format(boundary=DAYS[day]) + query, columns=columns, store=store)


def made(shop: Store, column: str = "cents") -> list[int]:
    return [cents for (cents,) in shop.rows(f"select {column}::bigint from shop.revenue order by day")]


def changes(shop: Store) -> list[dict[str, Any]]:
    """What the code here changes, of this project: the catalog has datasets of other tests."""
    return [each for each in shop.json("plan")["changes"]["datasets"] if each["dataset"].startswith(f"{shop.db}.")]


def of_lake(shop: Store, column: str) -> list[Any]:
    import varve

    with varve.open(shop.project) as reader:
        rows = reader.table(f"{shop.db}.revenue").orderBy("day").select(column).collect()
    return [row[0] for row in rows]


def test_a_correction_leaves_earlier_windows_to_the_code_that_has_made_them(shop: Store, tmp_path: Path) -> None:
    files = []
    for day, cents in ((0, 7), (2, 8)):
        files.append(tmp_path / f"sales_{DAYS[day]}.csv")
        files[-1].write_text(f"product,cents\npen,{cents}\n")
    done = shop.json("correct", "shop.sales", *map(str, files))
    assert done["held"].keys() == {f"{shop.db}.revenue"}
    assert done["held"][f"{shop.db}.revenue"].keys() == {f"day={DAYS[0]}"}
    assert made(shop) == [100, 100, 80]
    assert (shop.run_due(), made(shop)) == ([], [100, 100, 80])
    # Asked for by a person, it is computed.
    shop.varve("backfill", "start", "shop.revenue", f"day={DAYS[0]}")
    shop.run_due()
    assert made(shop) == [70, 100, 80]


def test_another_generation_of_what_it_reads_leaves_them_too_and_so_does_the_way_back(shop: Store) -> None:
    sales = shop.root / f"{shop.db}_assets" / "sales.sql"
    before = sales.read_text()
    sales.write_text(before.replace("product STRING NOT NULL", "article STRING NOT NULL RENAMED FROM product"))
    revenue(shop, "SUM(sales.cents) * 10", product="article")
    done = shop.json("evolve", "shop.sales")
    assert done["computed"] == {f"{shop.db}.revenue": 1}
    assert len(done["held"][f"{shop.db}.revenue"]) == 2
    assert made(shop) == [100, 100, 1000]
    assert shop.run_due() == []
    sales.write_text(before)
    revenue(shop, "SUM(sales.cents) * 10")
    shop.varve("rollback", "--run", done["run"])
    assert made(shop) == [100, 100, 1000]
    assert (shop.run_due(), made(shop)) == ([], [100, 100, 1000])
    assert changes(shop) == []


def test_a_generation_of_its_own_takes_the_rows_of_earlier_windows_over(shop: Store) -> None:
    revenue(shop, "SUM(sales.cents) * 10", name="amount", was="cents", store="LAKE")
    looked = shop.json("evolve", "shop.revenue", "--dry-run")
    assert looked["rewritten"] == {f"{shop.db}.revenue": 2}
    assert looked["due"] == {f"{shop.db}.revenue": [f"day={DAYS[2]}"]}
    done = shop.json("evolve", "shop.revenue")
    assert (done["rewritten"], done["computed"]) == ({f"{shop.db}.revenue": 2}, {f"{shop.db}.revenue": 1})
    assert of_lake(shop, "amount") == [100, 100, 1000]
    assert (shop.run_due(), of_lake(shop, "amount")) == ([], [100, 100, 1000])
    assert changes(shop) == []
    # Back, with nothing said of the column: what is kept is taken.
    revenue(shop, "SUM(sales.cents) * 10")
    assert shop.json("evolve", "shop.revenue")["computed"] == {}
    assert (made(shop), shop.run_due()) == ([100, 100, 1000], [])


def test_what_cannot_be_taken_over_is_refused_and_never_computed_with_the_code_of_now(shop: Store) -> None:
    # One column goes and another comes, and nobody says that it is the same one.
    revenue(shop, "SUM(sales.cents) * 10", name="amount", store="LAKE")
    with pytest.raises(VarveError, match=r"2 partitions .* cents goes while amount comes.* Nothing was computed"):
        shop.varve("evolve", "shop.revenue")
    assert made(shop) == [100, 100, 1000]
    # An earlier date gives all of them to the code of now.
    revenue(shop, "SUM(sales.cents) * 10", name="amount", store="LAKE", day=0)
    assert shop.json("evolve", "shop.revenue")["computed"] == {f"{shop.db}.revenue": 3}
    assert of_lake(shop, "amount") == [1000, 1000, 1000]


def test_another_date_counts_although_the_code_is_the_same(shop: Store) -> None:
    revenue(shop, "SUM(sales.cents) * 10", day=1)
    (change,) = changes(shop)
    assert (change["kind"], change["stay"], list(change["partitions"])) == ("decided", 1, [f"day={DAYS[1]}"])
    assert "what it says of earlier code is not" in " ".join(shop.varve("plan").split())
    assert made(shop) == [100, 100, 1000]
    shop.run_due()
    assert (made(shop), changes(shop)) == ([100, 1000, 1000], [])
    # A later one gives nothing back: those windows are of the code of now.
    revenue(shop, "SUM(sales.cents) * 10", day=3)
    assert (shop.run_due(), made(shop), changes(shop)) == ([], [100, 1000, 1000], [])
    revenue(shop, "SUM(sales.cents) * 10")
    assert (shop.run_due(), made(shop)) == ([], [100, 1000, 1000])
    # No date at all: everything is computed with the code of now.
    body = "ON CODE CHANGE REBUILD\n" + REVENUE.replace("SUM(sales.cents)", "SUM(sales.cents) * 10")
    shop.sql("revenue", body, columns=COLUMNS.format(name="cents", was=""), store="WAREHOUSE")
    shop.run_due()
    assert (made(shop), changes(shop)) == ([1000, 1000, 1000], [])


def test_what_a_person_has_applied_is_not_undone_by_the_declaration(shop: Store) -> None:
    hold = REVENUE.replace("SUM(sales.cents)", "SUM(sales.cents) * 7")
    shop.sql("revenue", hold, columns=COLUMNS.format(name="cents", was=""), store="WAREHOUSE")
    number = shop.json("plan")["changes"]["number"]
    shop.varve("apply", str(number), f"{shop.db}.revenue", "--forward-from", str(DAYS[2]))
    assert f"revenue {DAYS[2]}" in shop.run_due()
    assert made(shop) == [100, 100, 700]
    # The same code, with a date of its own that would compute the second day: the person has said otherwise.
    body = FORWARD.format(boundary=DAYS[1]) + hold
    shop.sql("revenue", body, columns=COLUMNS.format(name="cents", was=""), store="WAREHOUSE")
    assert (shop.run_due(), made(shop)) == ([], [100, 100, 700])
