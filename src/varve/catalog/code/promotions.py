"""Promotions of environments on record: what each deploys and moves, for `varve apply` and `varve revert`.

Not here: making one (varve/stores/environments/promoter.py), and plans of code alone (plans.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from varve.catalog.code.deployments import Deployments
from varve.model.errors import VarveError, counted, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    import psycopg

    from varve.catalog.code.deployments import Deployment

# The environment in which a promotion is taken back is named by this and its number.
REVERT = "revert_"
_SAME = "select id from varve.plan where digest = %s and applied_at is null order by id desc limit 1"
_ADD = "insert into varve.plan (digest, contents, made_by) values (%s, %s, %s) returning id"
_APPLIED = """
    update varve.plan set contents = %s, applied_at = clock_timestamp(), applied_by = %s where id = %s
"""
_ADD_APPLIED = """
    insert into varve.plan (digest, contents, made_by, applied_at, applied_by)
    values (%s, %s, %s, clock_timestamp(), %s) returning id
"""
_PROMOTIONS = """
    select id, digest, contents, applied_at, applied_by from varve.plan where contents ->> 'environment' is not null
"""
_OF = _PROMOTIONS + " and id = %s"
_OF_RUN = _PROMOTIONS + " and starts_with(contents ->> 'run', %s) and applied_at is not null order by id"
_CODE_PLAN = "select applied_by from varve.plan where id = %s and contents ->> 'environment' is null"
_LAST_OF = _PROMOTIONS + " and contents ->> 'environment' = %s and applied_at is not null order by id desc limit 1"
_MADE_BY_RUN = _PROMOTIONS + " and contents ->> 'run' = %s and applied_at is not null order by id desc limit 1"
# Bytes and contents are nothing to a promotion, and half of the time of the whole list of the overlay.
_CANDIDATES = """
    select o.dataset, o.partition, o.batch_id, b.generation, d.generation
    from varve.overlay o join varve.dataset d using (dataset)
    join varve.batch b on (b.dataset, b.partition, b.batch_id) = (o.dataset, o.partition, o.batch_id)
    left join varve.current c on (c.dataset, c.partition) = (o.dataset, o.partition)
    where o.environment = %s and o.batch_id is distinct from c.batch_id order by o.dataset, o.partition
"""
_DECLARED = "select dataset, declaration from varve.dataset where dataset = any(%s)"


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """What a promotion does, as it is kept in the catalog.

    Attributes:
        behind: what becomes of what is left behind, a value of `LeftBehind`.
        codes: by dataset the code version that it deploys.
        batches: by dataset and partition the id of the batch that it makes current.
        run_id: under which its publishes are recorded; "" before it is made.
        declarations: how those datasets were declared before, as far as they were.
        incomplete: whether readers may miss what a new generation lacks.
        earlier_code: whether code may go in force again that was deployed before, and was replaced since.
        number, applied_at, applied_by: None, None and "" where it is not kept yet, or not made.
    """

    environment: str
    behind: str
    codes: Mapping[str, str]
    batches: Mapping[str, Mapping[str, int]]
    run_id: str = ""
    declarations: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    applied_at: dt.datetime | None = None
    applied_by: str = ""
    incomplete: bool = False
    earlier_code: bool = False

    @property
    def digest(self) -> str:
        """Of all that it does: the same for two plans exactly if they do the same."""
        contents = [self.environment, self.behind, dict(self.codes), self.batches]
        contents += ["incomplete"] if self.incomplete else []
        contents += ["earlier code"] if self.earlier_code else []
        return blake2b(json.dumps(contents, sort_keys=True).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Promotions:
    """The promotions in a catalog, over one connection."""

    connection: psycopg.Connection

    def candidates(self, environment: str) -> list[tuple[str, str, int, int, int]]:
        """The batches of an overlay that are not current: dataset, partition, id, generation, and that of readers."""
        return self.connection.execute(_CANDIDATES, (environment,), binary=True).fetchall()

    def keep(self, plan: PromotionPlan, *, by: str) -> int:
        """Keep what would be promoted; returns its number, which is the same as long as it is the same."""
        if row := self.connection.execute(_SAME, (plan.digest,)).fetchone():
            return int(row[0])
        row = self.connection.execute(_ADD, (plan.digest, Jsonb(_contents(plan, {})), by)).fetchone()
        assert row is not None
        return int(row[0])

    def applied(self, plan: PromotionPlan, *, by: str) -> int:
        """Note in the promotion's transaction, before anything changes, that it is made; returns its number."""
        names = sorted({*plan.codes, *plan.batches})
        declarations: dict[str, Any] = dict(self.connection.execute(_DECLARED, (names,)).fetchall())
        digest, contents = plan.digest, Jsonb(_contents(plan, declarations))
        if row := self.connection.execute(_SAME, (digest,)).fetchone():
            self.connection.execute(_APPLIED, (contents, by, row[0]))
        else:
            row = self.connection.execute(_ADD_APPLIED, (digest, contents, by, by)).fetchone()
        assert row is not None
        return int(row[0])

    def of(self, number: int) -> PromotionPlan | None:
        """The plan of that number, where it is one of a promotion."""
        row = self.connection.execute(_OF, (number,)).fetchone()
        return None if row is None else _plan(row)

    def of_run(self, run_id: str) -> PromotionPlan | None:
        """The promotion whose publishes are recorded under this run id, where it is one."""
        row = self.connection.execute(_MADE_BY_RUN, (run_id,)).fetchone()
        return None if row is None else _plan(row)

    def made(self, name: str) -> PromotionPlan:
        """The promotion with that number, or whose run id begins so. Raises VarveError where that is not one."""
        if name.isdecimal():
            rows = self.connection.execute(_OF, (int(name),)).fetchall()
        else:
            # Every run begins with nothing.
            rows = self.connection.execute(_OF_RUN, (name,)).fetchall() if name else []
        plans = [plan for plan in map(_plan, rows) if plan.applied_at is not None]
        if not plans and name.isdecimal() and (row := self.connection.execute(_CODE_PLAN, (int(name),)).fetchone()):
            (by,) = row
            done = f"deployed the code that was here, by {by}" if by else "was not applied"
            raise VarveError(
                f"plan {name} {done}; it promoted nothing, so that there is no promotion to take back. Nothing was "
                "changed. To have the code before in force again: check it out, then varve plan says what follows."
            )
        if len(plans) != 1:
            many = f"{counted(len(plans), 'promotion')} begin so: {some([plan.run_id for plan in plans])}"
            raise VarveError(
                f"{name!r} is not a promotion that was made{'; ' + many if plans else ''}. Nothing was changed. "
                "`varve promote` prints the number and the run of each."
            )
        return plans[0]

    def taken_back(self, plan: PromotionPlan) -> PromotionPlan | None:
        """The promotion that has taken this one back, while nothing was deployed behind that."""
        row = self.connection.execute(_LAST_OF, (f"{REVERT}{plan.number}",)).fetchone()
        last = None if row is None else _plan(row)
        if last is None or not (names := sorted(plan.codes.keys() & last.codes.keys())):
            return None
        deployed = Deployments(self.connection).current()
        return last if all(name in deployed and deployed[name].plan == last.number for name in names) else None

    def code_before(self, plan: PromotionPlan) -> dict[str, Deployment | None]:
        """By dataset whose code the promotion deployed the deployment before it; None: there was none.

        Datasets that were dropped since are not among them. Raises VarveError where other code was deployed since, and
        where that is the code before already.
        """
        deployments = Deployments(self.connection)
        before: dict[str, Deployment | None] = {}
        others: dict[str, Deployment] = {}
        for dataset in sorted(plan.codes):
            history = deployments.history(dataset)
            place = next((place for place, each in enumerate(history) if each.plan == plan.number), None)
            if place is None:
                continue
            before[dataset] = history[place - 1] if place else None
            if place < len(history) - 1:
                others[dataset] = history[-1]
        in_force = {
            dataset for dataset, last in others.items()
            if (former := before[dataset]) is not None and former.code_version == last.code_version
        }  # fmt: skip
        if before and in_force == before.keys():
            raise VarveError(
                f"the code before promotion {plan.number} is in force already: it was deployed again since. Nothing "
                "was changed."
            )
        for dataset, last in others.items():
            first = f"varve revert {last.plan}" if last.plan and self.of(last.plan) else "varve plan"
            raise VarveError(
                f"{dataset}: since promotion {plan.number}, other code was deployed by {last.deployed_by} on "
                f"{last.deployed_at:%Y-%m-%d %H:%M} UTC. Nothing was changed. Go back behind that first: {first}."
            )
        if plan.codes and not before:
            raise VarveError(
                f"what promotion {plan.number} deployed was dropped since: {some(sorted(plan.codes))}. Nothing was "
                "changed, and nothing is left to take back."
            )
        return before


def _contents(plan: PromotionPlan, declarations: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "environment": plan.environment,
        "behind": plan.behind,
        "codes": dict(plan.codes),
        "partitions": {name: dict(batches) for name, batches in plan.batches.items()},
        "run": plan.run_id,
        "declarations": dict(declarations),
        "incomplete": plan.incomplete,
        "earlier_code": plan.earlier_code,
    }


def _plan(row: tuple[Any, ...]) -> PromotionPlan:
    number, _, contents, applied_at, applied_by = row
    return PromotionPlan(
        contents["environment"], contents.get("behind", ""), contents["codes"], contents["partitions"],
        contents.get("run", ""), contents.get("declarations", {}), number, applied_at, applied_by or "",
        contents.get("incomplete", False), contents.get("earlier_code", False),
    )  # fmt: skip
