"""Which code of each dataset is deployed, and what was decided for the partitions that other code has made.

New code is deployed by itself where nobody has to decide: for a dataset that is new or has no partition, and where its
policy says what follows. Else it waits for `varve apply`, and a process that has it plans nothing for the dataset.

Not here: the code of each dataset beside what is deployed (code_states.py), what differs between two codes
(varve/planning/changes), and the state of a partition (varve/planning/judgement/code.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.catalog.code.decision import Decision, before
from varve.catalog.code.generations import Generations
from varve.model.errors import NOTHING_LOST, CodeNotDeployed, counted
from varve.model.policy import OnCodeChange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import psycopg

    from varve.model.build import Build
    from varve.model.dataset import Dataset

_COLUMNS = """
    select p.dataset, p.id, p.code_version, p.decision, p.forward_from, p.plan, p.source, p.deployed_by, p.deployed_at,
        coalesce(d.may_be_mixed, false)
"""
_DEPLOYED = (
    _COLUMNS
    + """
    from varve.deployed d join varve.deployment p on p.id = d.deployment
    where %s::text[] is null or d.dataset = any(%s)
"""
)
_HISTORY = (
    _COLUMNS
    + """
    from varve.deployment p left join varve.deployed d on d.deployment = p.id where p.dataset = %s order by p.id
"""
)
# One deployment at a time: what a decision is about must not change under it.
_LOCK = "select pg_advisory_xact_lock(hashtextextended('varve deploy', 0))"
_WAS_DEPLOYED = "select from varve.deployment where dataset = %s and code_version = %s"
# What was deployed right after the last time that this code was.
_REPLACED_BY = """
    select deployed_by, deployed_at from varve.deployment
    where dataset = %(dataset)s and code_version <> %(code)s
        and id > (select max(id) from varve.deployment where dataset = %(dataset)s and code_version = %(code)s)
    order by id limit 1
"""
_WAS_DECIDED = """
    select from varve.deployment where dataset = %s and code_version = %s and decision = %s
        and forward_from is not distinct from to_timestamp(%s) limit 1
"""
# A promotion deploys with what the declaration says; what a person has applied otherwise is that person's.
_BY_A_PERSON = "select from varve.plan where id = %s and contents ->> 'environment' is null"
_HAS_PARTITIONS = "select from varve.current where dataset = %s limit 1"
_DEPLOYMENTS = "select from varve.deployment where dataset = %s limit 1"
_ADD = """
    insert into varve.deployment (dataset, code_version, decision, forward_from, plan, source, deployed_by)
    values (%s, %s, %s, %s, %s, %s, %s) returning id
"""
# The current batches that this code has not made.
_OTHERS = """
    select c.partition, c.batch_id from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and b.code_version not in ('', %s)
"""
_ADOPT_EARLIER = "update varve.accepted_code set deployment = %s where dataset = %s and deployment is null"
ACCEPT = """
    insert into varve.accepted_code (dataset, partition, batch_id, deployment)
    select %s, partition, batch_id, %s from unnest(%s::text[], %s::bigint[]) as accepted (partition, batch_id)
    on conflict (dataset, partition, batch_id) do update set deployment = excluded.deployment
"""
POINT = """
    insert into varve.deployed (dataset, deployment, code_version, may_be_mixed) values (%s, %s, %s, %s)
    on conflict (dataset) do update set deployment = excluded.deployment, code_version = excluded.code_version,
        may_be_mixed = excluded.may_be_mixed
"""
# Which datasets have any is answered by an index; their batches are looked at one by one.
_OUTDATED = """
    with mixed as materialized (
        select distinct d.dataset, d.deployment, d.code_version from varve.deployed d join varve.batch b using (dataset)
        where d.dataset = any(%s) and b.state = 'published' and b.code_version not in ('', d.code_version)
    )
    select b.dataset, b.partition, b.batch_id from mixed d join varve.batch b using (dataset)
    where b.state = 'published' and b.code_version not in ('', d.code_version) and not exists (
        select from varve.accepted_code a
        where (a.dataset, a.partition, a.batch_id, a.deployment) = (b.dataset, b.partition, b.batch_id, d.deployment))
    order by 1, 2
"""
_LOCK_FOR_DEPLOYMENT = "select from varve.deployed where dataset = %s for update"
_LOCK_ALL_FOR_DEPLOYMENT = "select from varve.deployed where dataset = any(%s) order by dataset for update"
_LOCK_DEPLOYED = "select code_version from varve.deployed where dataset = %s for share"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One time that a code version of a dataset was deployed.

    Attributes:
        decision: what was decided for partitions of other code.
        forward_from: for FORWARD: the begin of the first window that this code makes.
        plan: the plan that was applied; None where nobody had to decide.
        source: the declaration as it was written.
        may_be_mixed: whether current batches may have been made by other code; only of the deployment that counts.
    """

    dataset: str
    number: int
    code_version: str
    decision: OnCodeChange
    forward_from: dt.datetime | None
    plan: int | None
    source: str
    deployed_by: str
    deployed_at: dt.datetime
    may_be_mixed: bool


@dataclass(frozen=True)
class Deployments:
    """The deployments in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def current(self, names: Collection[str] | None = None) -> dict[str, Deployment]:
        """The deployment that counts, by dataset; of all datasets, or of these."""
        listed = None if names is None else list(names)
        return {row[0]: _deployment(row) for row in self.connection.execute(_DEPLOYED, (listed, listed))}

    def history(self, name: str) -> list[Deployment]:
        """Every deployment of a dataset, oldest first."""
        return [_deployment(row) for row in self.connection.execute(_HISTORY, (name,))]

    def until(self, name: str, code_version: str) -> str:
        """Until when this code of a dataset was in force, and who replaced it; "" where nobody has.

        Whoever has such code has an old checkout, unless it was put back on purpose.
        """
        row = self.connection.execute(_REPLACED_BY, {"dataset": name, "code": code_version}).fetchone()
        if row is None:
            return ""
        by, at = row
        return f"the code here was in force until {at:%Y-%m-%d %H:%M} UTC, when {by} deployed other code"

    def outdated(self, names: Iterable[str]) -> dict[str, dict[str, int]]:
        """By dataset and partition the current batches of other code than is deployed, without those that may stay."""
        batches: dict[str, dict[str, int]] = {}
        for name, path, batch_id in self.connection.execute(_OUTDATED, (list(names),)):
            batches.setdefault(name, {})[path] = batch_id
        return batches

    def made_by_others(self, name: str, code_version: str) -> dict[str, int]:
        """The current batches of a dataset, by partition, that another code than this has made."""
        return dict(self.connection.execute(_OTHERS, (name, code_version)).fetchall())

    def admit(self, dataset: Dataset, code_version: str, source: str, paths: Sequence[str] | None = None) -> Deployment:
        """Let a run compute with this code, which is deployed by that where nobody has to decide.

        `paths` are the partitions that the run computes. Raises CodeNotDeployed where other code is deployed, and where
        the partitions would be of other code than others, of which nobody has said what is to become of them.
        """
        deployment = self.current([dataset.name]).get(dataset.name)
        if deployment is not None and (breaking := Generations(self.connection).breaking([dataset])):
            raise new_generation(dataset.name, breaking[dataset.name])
        if deployment is None or deployment.code_version != code_version:
            if not self.decided_by_itself(dataset, code_version, deployment, by_run=paths is not None):
                assert deployment is not None
                raise _not_deployed(dataset, code_version, deployment)
            return self.deploy(dataset, code_version, source, Decision.of_policy(dataset), by="a run or a sensor")
        if paths is not None and deployment.may_be_mixed and deployment.decision is OnCodeChange.HOLD:
            others = self.outdated([dataset.name]).get(dataset.name, {}).keys() - set(paths)
            if others:
                raise CodeNotDeployed(
                    f"{dataset}: {counted(len(others), 'partition')} ({min(others)} ...) were made by other code than "
                    f"is deployed, and the table would mix the two. {NOTHING_LOST} Say what is to become of them: "
                    "`varve plan`, then `varve apply --rebuild` or `--forward-from`."
                )
        return deployment

    def declared_otherwise(self, dataset: Dataset, deployment: Deployment) -> Decision | None:
        """What the declaration says now of partitions of earlier code, where it said something else at the deployment.

        None where a person has decided, has still to decide, or where there is nothing to decide. A decision that was
        replaced is that of a process that has not been restarted, as its code would be.
        """
        declared = self._other_declared(dataset, deployment)
        return None if declared is None or self._was_decided(dataset, deployment, declared) else declared

    def declared_again(self, dataset: Dataset, deployment: Deployment) -> Decision | None:
        """The same where that was decided for this code before, and was replaced: a person has to say that it is meant.

        None where it is not so.
        """
        declared = self._other_declared(dataset, deployment)
        return declared if declared is not None and self._was_decided(dataset, deployment, declared) else None

    def _was_decided(self, dataset: Dataset, deployment: Deployment, declared: Decision) -> bool:
        decided = (dataset.name, deployment.code_version, str(declared.kind), declared.instant(dataset))
        return self.connection.execute(_WAS_DECIDED, decided).fetchone() is not None

    def _other_declared(self, dataset: Dataset, deployment: Deployment) -> Decision | None:
        declared = Decision.of_policy(dataset)
        if OnCodeChange.HOLD in {declared.kind, deployment.decision} or not deployment.may_be_mixed:
            return None
        instant = declared.instant(dataset)
        at = None if deployment.forward_from is None else deployment.forward_from.timestamp()
        if (declared.kind, instant) == (deployment.decision, at):
            return None
        by_a_person = self.connection.execute(_BY_A_PERSON, (deployment.plan,)).fetchone() is not None
        return None if by_a_person else declared

    def decide_as_declared(self, dataset: Dataset, deployment: Deployment) -> Deployment:
        """Deploy the same code again with what the declaration says now, where that is `declared_otherwise`."""
        with self.connection.transaction():
            self.connection.execute(_LOCK)
            now = self.current([dataset.name])[dataset.name]
            decision = None if now.number != deployment.number else self.declared_otherwise(dataset, now)
            if decision is None:
                return now
            return self._deploy(dataset, now.code_version, now.source, decision, by="a run or a sensor")

    def deploy(self, dataset: Dataset, code_version: str, source: str, decision: Decision, *, by: str) -> Deployment:
        """Make this the deployed code of a dataset, in a transaction or a savepoint of the caller's.

        Raises VarveError where FORWARD is decided for a dataset without a time dimension.
        """
        name = dataset.name
        with self.connection.transaction():
            self.connection.execute(_LOCK)
            if decision.plan is None:
                # Another process may have been first.
                deployment = self.current([name]).get(name)
                if deployment is not None and deployment.code_version == code_version:
                    return deployment
                if not self.decided_by_itself(dataset, code_version, deployment, by_run=True):
                    assert deployment is not None
                    raise _not_deployed(dataset, code_version, deployment)
            return self._deploy(dataset, code_version, source, decision, by=by)

    def _deploy(self, dataset: Dataset, code_version: str, source: str, decision: Decision, *, by: str) -> Deployment:
        """Note the deployment, in a transaction that holds the lock of deployments."""
        name = dataset.name
        # What is being published with the code before is waited for, and then counts as made by it.
        self.connection.execute(_LOCK_FOR_DEPLOYMENT, (name,))
        others = self.made_by_others(name, code_version)
        is_first = self.connection.execute(_DEPLOYMENTS, (name,)).fetchone() is None
        begin = decision.instant(dataset)
        instant = None if begin is None else dt.datetime.fromtimestamp(begin, dt.UTC)
        row = self.connection.execute(
            _ADD, (name, code_version, str(decision.kind), instant, decision.plan, source, by)
        ).fetchone()
        assert row is not None
        if is_first:
            self.connection.execute(_ADOPT_EARLIER, (row[0], name))
        if decision.kind is OnCodeChange.FORWARD:
            stay = before(dataset, others, begin)
            self.connection.execute(ACCEPT, (name, row[0], list(stay), list(stay.values())))
        self.connection.execute(POINT, (name, row[0], code_version, bool(others)))
        return self.current([name])[name]

    def refuse_evolving(self, dataset: Dataset, upstreams: Iterable[Dataset]) -> None:
        """Raise CodeNotDeployed where a dataset is to be read as another generation than there is."""
        by_name = {upstream.name: upstream for upstream in upstreams}
        for name, reasons in Generations(self.connection).breaking(by_name.values()).items():
            if project := by_name[name].of_project:
                raise CodeNotDeployed(f"{dataset} reads {name}: {otherwise(project, name, reasons)}")
            raise CodeNotDeployed(f"{dataset} reads {new_generation(name, reasons)}")

    def lock(self, datasets: Iterable[str]) -> None:
        """In a transaction: wait for the publishes of these datasets that are under way; the next ones wait for us.

        A publish locks the deployment of its dataset first and then what is current. Who locks what is current and
        deploys after that would wait for a publish that waits for it.
        """
        self.connection.execute(_LOCK)
        self.connection.execute(_LOCK_ALL_FOR_DEPLOYMENT, (sorted(datasets),))

    def refuse_other_code(self, build: Build) -> None:
        """Lock the deployment of a build's dataset until the transaction ends.

        Raises CodeNotDeployed where other code was deployed since the build began.
        """
        row = self.connection.execute(_LOCK_DEPLOYED, (build.dataset.name,)).fetchone()
        if row is not None and build.code_version and row[0] != build.code_version:
            raise CodeNotDeployed(
                f"{build}: other code ({row[0]}) was deployed while this run computed with {build.code_version}. "
                f"{NOTHING_LOST} Run the partitions again with the code that is deployed."
            )

    def decided_by_itself(
        self, dataset: Dataset, code_version: str, deployment: Deployment | None, *, by_run: bool
    ) -> bool:
        """Whether new code may be deployed without a person.

        Code that was deployed before and was replaced is old code of a process that has not been restarted.
        """
        if deployment is None:
            return True
        if self.connection.execute(_HAS_PARTITIONS, (dataset.name,)).fetchone() is None:
            # A run takes any code then. Two sensors of unlike code would deploy against each other at each tick.
            if by_run:
                return True
        elif dataset.policy.on_code_change is OnCodeChange.HOLD:
            return False
        return self.connection.execute(_WAS_DEPLOYED, (dataset.name, code_version)).fetchone() is None


def new_generation(name: str, reasons: Sequence[str]) -> CodeNotDeployed:
    """The error where a declaration needs a generation that is not built yet."""
    return CodeNotDeployed(
        f"{name}: the declaration here is of another generation than readers see. {' '.join(reasons)} {NOTHING_LOST} "
        f"`varve evolve {name}` builds it beside the old one, and moves readers when it is complete."
    )


def otherwise(project: str, name: str, reasons: Sequence[str]) -> str:
    """What is wrong where a dataset of another project is declared here otherwise than that publishes it."""
    return (
        f"project {project} publishes it otherwise than it is declared here. {' '.join(reasons)} {NOTHING_LOST} "
        f"`varve import {name} --print` shows how it is now."
    )


def _not_deployed(dataset: Dataset, code_version: str, deployment: Deployment) -> CodeNotDeployed:
    return CodeNotDeployed(
        f"{dataset}: the code here ({code_version}) is not the one that is deployed ({deployment.code_version}, since "
        f"{deployment.deployed_at:%Y-%m-%d %H:%M} UTC by {deployment.deployed_by}). {NOTHING_LOST} `varve plan` shows "
        "what the change means, `varve apply` deploys it; or run the code that is deployed."
    )


def _deployment(row: Sequence[object]) -> Deployment:
    name, number, version, decision, *others = row
    return Deployment(name, number, version, OnCodeChange(str(decision)), *others)  # type: ignore[arg-type]
