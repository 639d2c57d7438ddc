"""`varve.run_due`: what the sensors ask for, also of files that arrived a moment ago."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_environments import DAYS, shop_at_rest  # noqa: F401 - a fixture
from varve.catalog.catalog import Catalog

if TYPE_CHECKING:
    from tests.cli.test_environments import Store

pytestmark = pytest.mark.spark


def test_files_that_arrived_a_moment_ago_are_waited_for(
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, folder = shop_at_rest, shop_at_rest.root / "landing" / shop_at_rest.db / "sales"
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "1.5")
    shop.send(DAYS[0], ("pen", 100))
    assert f"sales {DAYS[0]}" in shop.run_due()
    assert shop.totals() == {DAYS[0]: 100}
    # One with the name of a file that is still being written keeps nobody waiting for ever.
    monkeypatch.setenv("VARVE_SETTLE_SECONDS", "0.2")
    writing = folder / f"sales_{DAYS[1]}.csv.part"
    writing.write_text("product,cents\n")
    assert shop.run_due() == []


def test_what_a_person_ends_is_no_failure_and_goes_on_with_the_next_call(
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, staged = shop_at_rest, Catalog.staged

    def interrupted(*given: object, **named: object) -> None:
        monkeypatch.setattr(Catalog, "staged", staged)
        signal.raise_signal(signal.SIGINT)
        staged(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setenv("VARVE_BACKOFF_SECONDS", "0")
    shop.send(DAYS[0], ("pen", 700))
    monkeypatch.setattr(Catalog, "staged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shop.run_due()
    assert shop.rows(f"select from varve.current where dataset like '{shop.db}.%'") == []
    assert f"sales {DAYS[0]}" in shop.run_due()
    assert shop.totals() == {DAYS[0]: 700}
