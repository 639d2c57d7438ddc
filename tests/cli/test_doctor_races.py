"""`varve doctor` while others publish: what it has looked at before and after a publish is no difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.shop import Shop
from varve.stores.lake import projection

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark


def test_a_publish_between_two_looks_is_no_finding_and_what_stays_is_one(
    tmp_path: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.at(tmp_path, workbench, monkeypatch)
    shop.sell("2026-11-01", [(1, "pen", "1.00")])
    shop.sell("2026-11-02", [(2, "ink", "2.00")])
    sales = shop.asset("sales").dataset
    of_now, looks = projection.shown, list[int]()

    def published_meanwhile(*words: object) -> dict[str, str]:
        """What the Hive table shows; at the first look somebody publishes before it is asked."""
        looks.append(1)
        if len(looks) == 1:
            shop.sell("2026-11-01", [(1, "pen", "3.00")])
        return of_now(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(projection, "shown", published_meanwhile)
    examined = shop.json("doctor", "shop.sales")
    assert (examined["findings"], len(looks)) == ([], 2)
    folder = Path(workbench.current(sales)["day=2026-11-02"].location.removeprefix("file:"))
    folder.rename(folder.with_name("aside"))
    (finding,) = shop.json("doctor", "shop.sales")["findings"]
    assert finding["problem"].endswith("is gone")
    assert len(looks) == 4
