"""Promotions while production publishes: none waits for ever or is lost, and in the end all fits together."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.catalog.test_deployments import DAYS
from tests.catalog.test_environments import Environment, assert_consistent, correct, environment, process
from varve.model.errors import StalePublish, VarveError
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import NotClosed, Promotion

if TYPE_CHECKING:
    from tests.catalog.test_deployments import Process

__all__ = ["process"]


@pytest.mark.parametrize("rounds", [5])
def test_a_promotion_among_publishes_is_made_or_refused_as_a_whole(process: Process, rounds: int) -> None:
    over, errors, corrections, promoted = threading.Event(), list[BaseException](), 0, 0
    dsn = process.connection.info.dsn
    deployed = dict(process.codes)

    def produce() -> None:
        nonlocal corrections
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not over.is_set():
                mine = replace(process, connection=connection, codes=dict(deployed))
                try:
                    correct(mine, corrections % 3 + 1, f"c{corrections}")
                    corrections += 1
                    # A promotion that has to compute something again needs a moment in which nothing is corrected.
                    over.wait(corrections % 4 * 0.5)
                except (StalePublish, VarveError):
                    # Somebody promoted meanwhile: the next tick goes on with what is deployed then.
                    time.sleep(0.01)
                except BaseException as error:  # noqa: BLE001 - asserted at the end
                    errors.append(error)
                    return

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for number in range(rounds):
            edited = environment(replace(process, codes={**deployed, "shop.revenue": f"r{number + 2}"}), f"e{number}")
            edited.run()
            for _ in range(30):
                try:
                    edited.promote()
                except (NotClosed, StalePublish):
                    edited.environments.rebase(edited.name, code_too=False)
                    edited.run()
                else:
                    promoted += 1
                    deployed["shop.revenue"] = f"r{number + 2}"
                    break
            edited.environments.drop(edited.name)
    finally:
        over.set()
        producer.join(timeout=60)
    assert errors == []
    assert not producer.is_alive()
    assert corrections > 0
    assert promoted > 0
    # What a correction had begun before the last promotion is computed by the next tick.
    final = Environment(replace(process, codes=dict(deployed)), "end").process
    for day in (1, 2, 3):
        correct(final, day, f"end{day}")
    assert_consistent(final)


def test_what_was_computed_in_the_environment_meanwhile_stays_there(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = environment(process.with_code("r2"))
    alice.run()
    batches = {row.partition: row.batch_id for row in alice.environments.overlay("alice")
               if row.dataset == "shop.revenue"}  # fmt: skip
    changes, path = Promoter._changes, DAYS[1].path

    def first_another(promoter: Promoter, promotion: Promotion) -> object:
        monkeypatch.setattr(Promoter, "_changes", changes)
        alice.finish(alice.begin("shop.revenue", DAYS[1]))
        return changes(promoter, promotion)

    monkeypatch.setattr(Promoter, "_changes", first_another)
    alice.promote()
    (row,) = [row for row in alice.environments.overlay("alice") if row.dataset == "shop.revenue"]
    assert (row.partition, row.current) == (path, batches[path])
    assert row.batch_id not in batches.values()


def test_two_that_promote_unlike_code_of_one_dataset_at_once_do_not_undo_each_other(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = environment(process.with_code("r2")), environment(process.with_code("r3"), "bob")
    ann.run()
    bob.run()
    changes = Promoter._changes

    def first_bob(promoter: Promoter, promotion: Promotion) -> object:
        monkeypatch.setattr(Promoter, "_changes", changes)
        bob.promote()
        return changes(promoter, promotion)

    monkeypatch.setattr(Promoter, "_changes", first_bob)
    with pytest.raises(
        VarveError, match=r"deployed in production while environment alice .*: shop.revenue, by ann\. No"
    ):
        ann.promote()
    assert process.code_of() == {1: "r3", 2: "r3", 3: "r3"}
    # Typed again, it is the conflict that it would have been a moment later.
    with pytest.raises(VarveError, match="alice has changed its code, and so has ann in production"):
        ann.promote()
