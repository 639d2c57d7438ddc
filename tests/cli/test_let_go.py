"""Who has files of an environment open reads to the end when it goes: they stay for the grace period."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.cli.test_environments import DAYS, Store, name_of, shop, shop_at_rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shop", "shop_at_rest"]

pytestmark = pytest.mark.spark

# Whatever was retired or let go of, that was so many days earlier.
RETIRED = "update varve.batch set retired_at = retired_at - interval '{} days' where dataset like '{}.%' returning 1"
LET_GO = "update varve.former_{} set until = until - interval '8 days' returning 1"


@pytest.mark.parametrize("ending", ["drop", "rebase", "expiry"])
def test_files_that_readers_of_an_environment_have_open_stay_for_the_grace_period(
    shop: Store, spark: SparkSession, ending: str
) -> None:
    name = name_of(shop)
    shop.varve("env", "create", name)
    shop.only_dearer_than(150)
    shop.varve("env", "run", name, "--from", str(DAYS[0]), "--to", str(DAYS[2]))
    shop.varve("env", "views", name)
    # Production replaces what the environment reads of its base.
    shop.only_dearer_than(None)
    for day in DAYS[3:]:
        shop.send(day, ("pen", 1))
    shop.run_due()
    shop.rows(RETIRED.format(30, shop.db))

    def sweep(*words: str) -> dict[str, int]:
        swept = shop.json("sweep", f"{shop.db}.revenue", *words)
        return {kind: sum(amount["count"] for amount in swept[kind].values()) for kind in ("batches", "kept")}

    opened = [Path(urlsplit(uri).path) for uri in spark.table(f"{shop.db}__{name}.revenue").inputFiles()]
    own, of_base = 3, 3
    assert len(opened) == own + of_base
    assert sweep() == {"batches": 0, "kept": own + of_base}
    if ending == "drop":
        shop.varve("env", "drop", name)
    elif ending == "rebase":
        shop.varve("env", "rebase", name)
    else:
        shop.rows(
            f"update varve.environment set used_at = used_at - interval '30 days' where name = '{name}' returning 1"
        )
    assert sweep("--dry-run") == {"batches": 0, "kept": own + of_base}
    assert sweep() == {"batches": 0, "kept": own + of_base}
    assert all(file.exists() for file in opened)
    assert spark.read.parquet(*map(str, opened)).count() == own + 2 * of_base
    for table in ("base", "overlay"):
        shop.rows(LET_GO.format(table))
    gone = of_base if ending == "rebase" else own + of_base
    assert sweep()["batches"] == gone
    assert sum(not file.exists() for file in opened) == gone
