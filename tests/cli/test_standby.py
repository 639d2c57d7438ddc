"""Commands that only look ask a standby, which takes no writes; all others are refused there, and say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from tests.cli.test_environments import DAYS, Store, filled, shop_at_rest  # noqa: F401
from tests.support import standby
from varve.cli.app import app
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.standby import Pair
    from varve.catalog.catalog import Catalog

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with standby.pair("varve") as found:
        yield found


def test_who_only_looks_may_ask_a_standby(
    pair: Pair,
    catalog: Catalog,
    shop_at_rest: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del catalog  # the other server has tables too, where the environments of earlier tests are dropped
    first, second = (f"postgresql://postgres@127.0.0.1:{server.port}/varve" for server in (pair.first, pair.second))
    monkeypatch.setenv("VARVE_POSTGRES_URL", first)
    shop_at_rest.settings = shop_at_rest.project.settings
    shop = filled(shop_at_rest)
    revenue, day = f"{shop.db}.revenue", f"day={DAYS[2]}"
    looks = [
        ["show", revenue, "--json"], ["history", revenue, "--json"], ["why", revenue, day, "--json"],
        ["graph"], ["env", "list", "--json"], ["backfill", "list", "--json"],
    ]  # fmt: skip
    told = [shop.varve(*words) for words in looks]
    monkeypatch.setenv("VARVE_POSTGRES_URL", second)
    assert [shop.varve(*words) for words in looks] == told
    assert all(told)
    # These say how old something is, or how long it takes to answer.
    of_one = (["tasks", revenue], ["costs", revenue], ["doctor", revenue])
    for words in (["status"], ["plan"], ["alerts"], ["metrics"], *of_one):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output, done.exception)
    with connect(shop.project.settings) as connection:
        for refused in (
            ["backfill", "start", revenue, day], ["sweep"], ["env", "create", "trial"],
            ["alerts", "--evaluate"],
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                shop.varve(*refused)
        assert connection.execute("select count(*) from varve.environment").fetchone() == (0,)
