"""Random histories of shapes: files, corrections, generations there and back, rollbacks; rows by plain Python beside.

The oracle knows the last file of each day that was not taken back, and nothing of batches, generations or environments.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

import varve
from tests.cli.test_environments import DAYS, SALES, TOTALS, Store, shop_at_rest  # noqa: F401 - a fixture

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

SEEDS, STEPS = (1, 2, 3, 4, 5, 6), 8
KINDS = ("send", "correct", "take back", "evolve", "evolve", "there and back")
Sales = list[tuple[str, int]]


@dataclass(frozen=True)
class Shape:
    """How the datasets are declared: names and types of columns, stores, and the partitions of revenue."""

    product: str = "product"
    cents: str = "BIGINT"
    amount: str = "cents"
    store: str = "LAKE"
    by_product: bool = False

    def other(self, of: random.Random) -> tuple[Shape, str]:
        """Another shape, and the dataset whose declaration that changes."""
        kind = of.choice(["product", "cents", "amount", "store", "by_product"])
        changed = {
            "product": {"product": "article" if self.product == "product" else "product"},
            "cents": {"cents": "INT" if self.cents == "BIGINT" else "BIGINT"},
            "amount": {"amount": "amount" if self.amount == "cents" else "cents"},
            "store": {"store": "WAREHOUSE" if self.store == "LAKE" else "LAKE"},
            "by_product": {"by_product": not self.by_product},
        }[kind]
        return replace(self, **changed), "sales" if kind in {"product", "cents"} else "revenue"  # type: ignore[arg-type]


@dataclass
class History:
    """A shop, how it is declared, and what the oracle knows: by day the rows of the file that counts."""

    shop: Store
    folder: Path
    shape: Shape = field(default_factory=Shape)
    files: dict[dt.date, Sales] = field(default_factory=dict)

    def declare(self, shape: Shape, before: Shape | None = None) -> None:
        """Write the three files; a renamed column of the landing dataset says what it was."""
        shop, renamed = self.shop, before is not None and before.product != shape.product
        was = f" RENAMED FROM {before.product}" if before is not None and renamed else ""
        sales = SALES.format(db=shop.db, start=DAYS[0]).replace("cents BIGINT", f"cents {shape.cents}")
        sales = sales.replace("product STRING NOT NULL", f"{shape.product} STRING NOT NULL{was}")
        (shop.root / f"{shop.db}_assets" / "sales.sql").write_text(sales, encoding="utf-8")
        query = (
            f"AS SELECT {shape.product} AS item, SUM(CAST(sales.cents AS BIGINT)) AS {shape.amount} "
            "FROM {db}.sales WHERE sales.day = today{{also}} GROUP BY " + shape.product + ";"
        ).replace("{db}", shop.db)
        if shape.by_product:
            self.by_product(query, shape.store)
        else:
            shop.sql("revenue", query.replace("{{also}}", ""), store=shape.store)
        totals = TOTALS.replace("revenue.cents", f"revenue.{shape.amount}")
        shop.sql("totals", totals, store="WAREHOUSE")
        self.shape = shape

    def by_product(self, query: str, store: str) -> None:
        """Revenue with one more partition column, which is a constant of the declaration."""
        self.shop.sql("revenue", query.replace("{{also}}", ""), store=store)
        file = self.shop.root / f"{self.shop.db}_assets" / "revenue.sql"
        text = file.read_text(encoding="utf-8")
        text = text.replace("PARTITIONED BY (day DATE)", "PARTITIONED BY (day DATE, half STRING)")
        text = text.replace("TIMEZONE 'UTC')\n", "TIMEZONE 'UTC'), h IN ('low', 'high')\n")
        text = text.replace("INSERT (day = today)", "INSERT (day = today, half = h)")
        cut = "(CASE WHEN sales.cents < 500 THEN 'low' ELSE 'high' END) = h"
        file.write_text(text.replace("sales.day = today", f"sales.day = today AND {cut}"), encoding="utf-8")

    def send(self, day: dt.date, rows: Sales) -> None:
        """The partner sends a file with the columns that are declared."""
        self.shop.send(day, *rows)
        file = self.shop.root / "landing" / self.shop.db / "sales" / f"sales_{day}.csv"
        file.write_text(file.read_text().replace("product,", f"{self.shape.product},", 1))
        self.files[day] = rows

    def corrected(self, day: dt.date, rows: Sales) -> str:
        """A correction, as the run under which it became current."""
        lines = "".join(f"{product},{cents}\n" for product, cents in rows)
        file = self.folder / f"sales_{day}.csv"
        file.write_text(f"{self.shape.product},cents\n{lines}")
        done: str = self.shop.json("correct", "shop.sales", str(file))["run"]
        return done

    def check(self, where: str) -> None:
        """Compare what readers have with what the files say; and nothing is left to do."""
        assert self.shop.run_due() == [], where
        totals = {day: sum(cents for _, cents in rows) for day, rows in self.files.items()}
        assert self.shop.totals() == totals, where
        expected = Counter[tuple[Any, ...]]()
        for day, rows in self.files.items():
            for product, cents in rows:
                expected[day, product] += cents
        with varve.open(self.shop.project) as reader:
            found = Counter[tuple[Any, ...]]()
            for row in reader.table(f"{self.shop.db}.revenue").collect():
                found[row.day, row.item] += row[self.shape.amount]
        assert found == expected, where


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_readers_have_what_the_files_say_whatever_is_declared(
    shop_at_rest: Store, tmp_path: Path, seed: int  # noqa: F811
) -> None:  # fmt: skip
    of = random.Random(seed)
    (shop_at_rest.root / f"{shop_at_rest.db}_assets" / "trailing.sql").unlink()
    history = History(shop_at_rest, tmp_path)
    history.declare(Shape())

    def rows() -> Sales:
        return [(of.choice(["pen", "ink", "pad"]), of.randrange(1, 1_000)) for _ in range(4)]

    for day in DAYS[:3]:
        history.send(day, rows())
    shop_at_rest.run_due()
    history.check("at first")
    for step in range(STEPS):
        kind, day = (
            of.choice(["send", "correct", "take back", "evolve", "evolve", "there and back"]),
            of.choice(DAYS[:3]),
        )
        where = f"seed {seed}, step {step}: {kind} {day}, {history.shape}"
        if kind == "send":
            history.send(day, rows())
            shop_at_rest.run_due()
        elif kind == "correct":
            corrected = rows()
            history.corrected(day, corrected)
            history.files[day] = corrected
        elif kind == "take back":
            shop_at_rest.varve("rollback", "--run", history.corrected(day, rows()))
        else:
            before = history.shape
            shape, dataset = before.other(of)
            history.declare(shape, before)
            where += f" -> {shape}"
            run = shop_at_rest.json("evolve", f"shop.{dataset}")["run"]
            if run is None:
                # A wider type or another column of a view needs no other generation, and is other code, of readers too.
                number = shop_at_rest.json("plan")["changes"]["number"]
                shop_at_rest.varve("apply", str(number), "--rebuild")
                shop_at_rest.run_due()
            history.check(where)
            if kind == "there and back" and run is not None:
                history.declare(before)
                shop_at_rest.varve("rollback", "--run", run)
                history.check(f"{where}, and back")
                history.declare(shape, before)
                shop_at_rest.varve("evolve", f"shop.{dataset}")
        history.check(where)
