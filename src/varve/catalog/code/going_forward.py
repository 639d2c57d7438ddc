"""Batches of earlier code that stay although they become current after the code goes forward (ON CODE CHANGE FORWARD).

A deployment lets those stay that are current then. Later ones are of another generation with the rows of the one
before, or those to which a promotion is taken back, or to which a person goes back.

Not here: the windows of an environment that keep earlier code (varve/catalog/environments/earlier_code.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.code.decision import before
from varve.catalog.code.deployments import ACCEPT, POINT, Deployments
from varve.model.policy import OnCodeChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from varve.catalog.code.deployments import Deployment
    from varve.model.dataset import Dataset

_RETURNED = """
    select c.partition, c.batch_id from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and c.partition = any(%s) and b.code_version not in ('', %s)
"""
_DECIDE_AGAIN = """
    update varve.deployment p set decision = %(decision)s, forward_from = %(from)s
    from varve.deployed d where d.dataset = %(dataset)s and p.id = d.deployment
"""
_ACCEPT_AGAIN = """
    update varve.accepted_code a set deployment = d.deployment
    from varve.deployed d join varve.current c using (dataset)
    where d.dataset = %(dataset)s and (a.dataset, a.partition, a.batch_id) = (c.dataset, c.partition, c.batch_id)
"""


@dataclass(frozen=True)
class GoingForward:
    """Over one connection, in the transaction in which the batches become current."""

    connection: psycopg.Connection

    def accept_earlier(self, dataset: Dataset, code_version: str) -> None:
        """Where a dataset goes forward, let batches of earlier code stay that have become current after its deployment.

        They are those of a new generation with the rows of the one before; in the transaction that makes them current.
        """
        deployment = Deployments(self.connection).current([dataset.name]).get(dataset.name)
        if deployment is None or deployment.decision is not OnCodeChange.FORWARD or deployment.forward_from is None:
            return
        others = Deployments(self.connection).made_by_others(dataset.name, code_version)
        stay = before(dataset, others, deployment.forward_from.timestamp())
        self.connection.execute(ACCEPT, (dataset.name, deployment.number, list(stay), list(stay.values())))
        self.connection.execute(POINT, (dataset.name, deployment.number, code_version, bool(others)))

    def accept_returned(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """The same for these partitions, whose earlier batches a person has made current again."""
        deployment = Deployments(self.connection).current([dataset.name]).get(dataset.name)
        if deployment is None or deployment.decision is not OnCodeChange.FORWARD or deployment.forward_from is None:
            return
        parameters = (dataset.name, list(paths), deployment.code_version)
        others: dict[str, int] = dict(self.connection.execute(_RETURNED, parameters).fetchall())
        stay = before(dataset, others, deployment.forward_from.timestamp())
        self.connection.execute(ACCEPT, (dataset.name, deployment.number, list(stay), list(stay.values())))

    def go_forward_again(self, earlier: Deployment) -> None:
        """Decide of a dataset what was decided at an earlier deployment; the current batches that stayed, stay again.

        In the transaction in which the code of that is deployed again and its batches have become current.
        """
        parameters = {"dataset": earlier.dataset, "from": earlier.forward_from, "decision": str(earlier.decision)}
        for statement in (_DECIDE_AGAIN, _ACCEPT_AGAIN):
            self.connection.execute(statement, parameters)
