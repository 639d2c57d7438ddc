"""What a promotion is, and what it leaves inconsistent: values, and what is said of them.

Not here: finding that out (closure.py), and doing it (promoter.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from varve.catalog.code.promotions import PromotionPlan
from varve.model.errors import VarveError, counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.batch import BatchId
    from varve.planning.changes.generation import EnvironmentGeneration

# How the ids begin under which promotions are recorded.
PROMOTION_RUN = "promote-"

# Partitions by dataset, each with the reason for which it is listed.
Listed = dict[str, dict[str, str]]


class LeftBehind(StrEnum):
    """What a promotion does where partitions of production would be left with old inputs or old code.

    REFUSE: nothing is promoted. RUN: they become due, and the sensors compute them. LEAVE_OUT: what they depend on is
    not promoted either: the largest part that is consistent is.
    """

    REFUSE = "refuse"
    RUN = "then run"
    LEAVE_OUT = "only consistent"


@dataclass(frozen=True, slots=True)
class Closure:
    """What a promotion would leave inconsistent.

    Attributes:
        moved: promoted partitions whose inputs production has replaced since: they are to be computed again first.
        behind: partitions of production that would be left with old inputs or old code.
        lacking: what readers have of a dataset, and the generation to which they would move has not.
    """

    moved: Listed = field(default_factory=dict)
    behind: Listed = field(default_factory=dict)
    lacking: Listed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion, made or only looked at.

    Attributes:
        codes: by dataset the code version that is deployed by it.
        batches: by dataset and partition the batch that becomes current.
        closure: what it leaves inconsistent; empty where nothing is.
        left_out: what of the environment is not promoted, by dataset and partition.
        removed: the deployed datasets that the environment's code does not declare; a promotion leaves them alone.
        run_id: under which its publishes are recorded (`varve history --run`); "" where nothing was promoted.
        generations: by dataset the generation to which readers move, where that is another one.
        incomplete: whether a person has said that readers may miss what a new generation lacks.
        earlier_code: whether a person has said that code may go in force again that was replaced.
        replaced: the datasets of which production has other code by now, which the environment has not changed since.
        instead_of: by dataset of `codes` the code that was deployed when this was found out; "" where there was none.
    """

    environment: str
    codes: Mapping[str, str]
    batches: Mapping[str, Mapping[str, BatchId]]
    closure: Closure
    left_out: Listed
    removed: tuple[str, ...] = ()
    run_id: str = ""
    number: int | None = None
    generations: Mapping[str, EnvironmentGeneration] = field(default_factory=dict)
    incomplete: bool = False
    replaced: tuple[str, ...] = ()
    instead_of: Mapping[str, str] = field(default_factory=dict)
    earlier_code: bool = False

    def is_refused(self, behind: LeftBehind) -> bool:
        """Whether it would be refused as it is."""
        closure = self.closure
        left_behind = behind is not LeftBehind.RUN and closure.behind
        return bool(closure.moved or left_behind or (closure.lacking and not self.incomplete))

    def after_a_run(self) -> Promotion:
        """As it would be once what was not made from what is current is computed, which a promotion does first."""
        return replace(self, closure=replace(self.closure, moved={}))

    @property
    def partitions(self) -> int:
        """How many partitions get another batch."""
        return sum(map(len, self.batches.values()))

    def plan(self, behind: LeftBehind) -> PromotionPlan:
        """The promotion as it is kept in the catalog."""
        batches = {name: {path: batch_id.millis for path, batch_id in paths.items()}
                   for name, paths in self.batches.items()}  # fmt: skip
        return PromotionPlan(
            self.environment, str(behind), dict(self.codes), batches, self.run_id, incomplete=self.incomplete,
            earlier_code=self.earlier_code,
        )  # fmt: skip


class Corrections(Protocol):
    """The corrected files of an environment (varve/sources/landing/corrections.py)."""

    def arrive(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Record, in the transaction, that production has the files from which these batches were made."""

    def send(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Put them into the landing folder of production."""

    def take_back(self) -> None:
        """Put back what lay there, where the transaction has failed after that."""


class NotClosed(VarveError):
    """A promotion would leave production inconsistent; nothing was promoted."""

    def __init__(self, promotion: Promotion) -> None:
        super().__init__(
            f"environment {promotion.environment} was not promoted, and nothing was changed: {not_closed(promotion)}."
        )
        self.promotion = promotion


def not_closed(promotion: Promotion) -> str:
    """What would be inconsistent, each with what to do about it."""
    closure = promotion.closure
    texts = []
    if closure.moved:
        texts.append(
            f"of it {_count(closure.moved)} not made from what is current now ({_some(closure.moved)}); "
            f"varve env run {promotion.environment} computes them, or says what keeps them"
        )
    if closure.lacking and not promotion.incomplete:
        texts.append(
            f"readers would miss {_count(closure.lacking)} ({_some(closure.lacking)}): try again when what they wait "
            "for is there, or `varve evolve --rewrite` where that can take the old rows over; with --incomplete "
            "readers are moved all the same, and miss them until then"
        )
    if closure.behind:
        texts.append(
            f"{_count(closure.behind)} of production would be left behind ({_some(closure.behind)}): compute them in "
            f"the environment too (varve env run {promotion.environment}), or promote with --then-run, after which the "
            "sensors compute them, or with --only-consistent, which leaves out what they depend on"
        )
    return "; ".join(texts)


def _count(listed: Listed) -> str:
    return counted(sum(map(len, listed.values())), "partition")


def _some(listed: Listed) -> str:
    texts = [
        f"{name} {path}: {reason}" if path else f"{name}: {reason}"
        for name, paths in listed.items() for path, reason in paths.items()
    ]  # fmt: skip
    # Reasons have commas of their own.
    return "; ".join([*texts[:3], *([f"and {len(texts) - 3} more"] if len(texts) > 3 else [])])
