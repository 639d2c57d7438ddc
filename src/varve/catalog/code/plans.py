"""Plans of code changes: each has a number and a digest of all that it assumes, so that exactly that plan is applied.

Not here: what a plan says (varve/planning/changes/code_changes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog.backfills import Backfills
from varve.catalog.code.code_states import CodeStates
from varve.catalog.code.decision import Decision, staying
from varve.catalog.code.deployments import Deployments, new_generation
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.model.errors import VarveError
from varve.model.policy import OnCodeChange
from varve.planning.changes.code_changes import CodeChange, DeployedCode, code_changes, digest_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph

_DECLARATIONS = """
    select d.dataset, d.declaration, count(c.partition), coalesce(sum(b.rows), 0)::bigint,
        coalesce(sum(b.bytes), 0)::bigint
    from varve.dataset d left join varve.current c using (dataset)
    left join varve.batch b using (dataset, partition, batch_id) where strpos(d.dataset, '#') = 0 group by 1
"""
_SAME = "select id from varve.plan where digest = %s and applied_at is null order by id desc limit 1"
_ADD = "insert into varve.plan (digest, contents, made_by) values (%s, %s, %s) returning id"
_PLAN = "select digest, applied_at, applied_by from varve.plan where id = %s"
_NUMBERS = "select max(id) from varve.plan"
_APPLIED = "update varve.plan set applied_at = clock_timestamp(), applied_by = %s where id = %s"
# The lock of deployments: what is decided must not change between the comparison and the decision.
_LOCK = "select pg_advisory_xact_lock(hashtextextended('varve deploy', 0))"


@dataclass(frozen=True, slots=True)
class CodePlan:
    """What the code of a project changes beside what is deployed.

    Attributes:
        number: by which it is applied; None where there is nothing to decide.
    """

    changes: tuple[CodeChange, ...]
    number: int | None = None

    @property
    def decisions(self) -> list[CodeChange]:
        """The changes of which a person has to decide what follows."""
        return [change for change in self.changes if change.needs_decision]


@dataclass(frozen=True)
class Plans:
    """The plans in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection
    graph: Graph
    members: Members | None = None

    def look(self, now: dt.datetime) -> CodePlan:
        """What the graph changes beside what is deployed; nothing is written, so that it has no number."""
        deployments = Deployments(self.connection)
        states = CodeStates(self.connection).of(self.graph)
        current = deployments.current()
        declarations = {name: (declared, *sums) for name, declared, *sums in self.connection.execute(_DECLARATIONS)}
        deployed, others = {}, {}
        # Also where all partitions were of the deployed code once: a person may have gone back to one of other code.
        outdated = deployments.outdated(current)
        for name, deployment in current.items():
            declared = declarations.get(name, ({}, 0, 0, 0))[0]
            on_hold = deployment.decision is OnCodeChange.HOLD
            columns = {
                column[0]: column[1]
                for column in (*declared.get("partition_columns", ()), *declared.get("columns", ()))
            }
            state, stay = states.get(name), dict[str, int]()
            evolving, again = state is not None and state.evolving == name, False
            # New code that nobody has to decide about counts as deployed.
            decided = state is not None and not state.owner and state.deployed not in {"", deployment.code_version}
            if state is not None and not state.differs and not decided:
                decided = deployments.declared_otherwise(self.graph.datasets[name], deployment) is not None
                again = deployments.declared_again(self.graph.datasets[name], deployment) is not None
            if state is not None and (state.differs or decided or again):
                others[name] = deployments.made_by_others(name, state.version)
            if decided or again:
                stay = staying(self.graph.datasets[name], others[name])
                others[name] = {path: batch for path, batch in others[name].items() if path not in stay}
            deployed[name] = DeployedCode(
                deployment.code_version, deployment.source, columns, on_hold, evolving, decided, len(stay), again
            )
            if decided or again or (state is not None and state.differs):
                continue
            if state is not None:
                others[name] = outdated.get(name, {})
        counts = {name: count for name, (_, count, *_) in declarations.items()}
        of_others = Owners(self.connection, self.graph.project).others()
        changes = code_changes(self.graph, deployed, others, counts, self.members, now, of_others)
        return CodePlan(tuple(self._with_costs(changes, declarations)))

    def kept(self, now: dt.datetime, *, by: str) -> CodePlan:
        """The same with a number, under which it can be applied as long as nothing of it has moved."""
        plan = self.look(now)
        if not plan.decisions:
            return plan
        digest = digest_of(plan.changes)
        row = self.connection.execute(_SAME, (digest,)).fetchone()
        if row is None:
            contents = Jsonb([{**change.as_values(), "diff": None} for change in plan.decisions])
            row = self.connection.execute(_ADD, (digest, contents, by)).fetchone()
        assert row is not None
        return replace(plan, number=int(row[0]))

    def apply(
        self, number: int, decision: Decision | None, only: Sequence[str], now: dt.datetime, *, by: str
    ) -> list[tuple[CodeChange, Decision]]:
        """Deploy the code of a plan, in one transaction; returns the changes with what was decided of each.

        Args:
            number: the plan.
            decision: for all its datasets; None: each dataset's own policy.
            only: the datasets whose code is deployed; empty: all of the plan.
            now: as in `look`.
            by: who decides.

        Raises VarveError where the plan does not exist, was applied, or is not what would be done now; CodeNotDeployed
        for a declaration that needs a new generation.
        """
        deployments = Deployments(self.connection)
        with self.connection.transaction():
            self.connection.execute(_LOCK)
            plan = self.look(now)
            self._refuse_other(number, plan)
            names = [change.dataset for change in plan.decisions]
            if unknown := sorted(set(only) - set(names)):
                raise VarveError(
                    f"plan {number} decides nothing of {', '.join(unknown)}; it is about {', '.join(names)}. "
                    "Nothing was changed."
                )
            done = []
            for change in plan.decisions:
                if only and change.dataset not in only:
                    continue
                dataset = self.graph.datasets[change.dataset]
                for name, reasons in Generations(self.connection).breaking([dataset]).items():
                    raise new_generation(name, reasons)
                own = replace(decision or Decision.of_policy(dataset), plan=number)
                Owners(self.connection, self.graph.project).claim_all([change.dataset], "Nothing was changed.")
                deployments.deploy(dataset, change.version, change.after, own, by=by)
                done.append((change, own))
            if len(done) == len(names):
                self.connection.execute(_APPLIED, (by, number))
        return done

    def _refuse_other(self, number: int, plan: CodePlan) -> None:
        """Raise VarveError where a plan is not the one that would be made now."""
        row = self.connection.execute(_PLAN, (number,)).fetchone()
        if row is None:
            last = self.connection.execute(_NUMBERS).fetchone()
            newest = f"the newest is {last[0]}" if last and last[0] else "there is none yet"
            raise VarveError(f"there is no plan {number}; {newest}. Nothing was changed. `varve plan` makes one.")
        digest, applied_at, applied_by = row
        if applied_at is not None:
            raise VarveError(
                f"plan {number} was applied at {applied_at:%Y-%m-%d %H:%M} UTC by {applied_by}. Nothing was changed."
            )
        if digest != digest_of(plan.changes):
            what = f"{len(plan.decisions)} datasets" if plan.decisions else "nothing"
            raise VarveError(
                f"plan {number} is not what would be done now: code, decisions or partitions have moved since it was "
                f"made; by now {what} would be decided. Nothing was changed. `varve plan` shows what it is now, and "
                "gives it a number."
            )

    def _with_costs(
        self, changes: Sequence[CodeChange], declarations: Mapping[str, tuple[object, int, int, int]]
    ) -> list[CodeChange]:
        """Add how much is computed again, by the size of the dataset's batches and by what its runs have taken."""
        costs = Backfills(self.connection).costs([change.dataset for change in changes])
        result = []
        for change in changes:
            _, count, rows, size = declarations.get(change.dataset, ({}, 0, 0, 0))
            share = len(change.partitions) / count if count else 0
            cost = costs.get(change.dataset)
            seconds = None if cost is None else cost.estimate(len(change.partitions)).seconds
            result.append(replace(change, rows=round(rows * share), size=round(size * share), seconds=seconds))
        return result
