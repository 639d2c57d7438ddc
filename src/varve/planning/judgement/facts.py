"""The facts of a partition on which its judgement depends: its batch, landing file, marks, run and failures.

They are plain tuples because there may be a million of them. Instants are seconds since 1970 (UTC).

Not here: where facts come from (varve/catalog/planning/facts.py) and what follows from them (judging.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from varve.planning.judgement.code import MadeBy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Failure(NamedTuple):
    """A build that failed: when it began and ended, and how many partitions it computed together.

    An `outage` is no attempt at the partitions: a service that the run needs, or the machine for it, was missing.
    """

    began: float
    ended: float
    together: int
    outage: bool = False


class Mark(NamedTuple):
    """A dirty mark: the partition must be computed again, whatever its inputs are.

    Attributes:
        number: a number from the same sequence as batch ids: a batch with a higher id removes the mark.
        backfill: the number of the backfill that made it.
        paused: whether that backfill is paused.
    """

    number: int
    reason: str
    backfill: int
    paused: bool = False


class Accepted(NamedTuple):
    """An input whose change makes no difference to a partition, because a person has said so.

    Attributes:
        version: the version of the input; "" where it is not there; None: the one that a backfill is about to make.
        reason: why, and who said it.
    """

    source: str
    partition: str
    version: str | None
    reason: str


class Fact(NamedTuple):
    """All facts of one partition; each default means that there is no such fact.

    Attributes:
        batch: the id of the current batch, which is the millisecond at which its run began.
        published: since when that batch is current.
        equal: ids of earlier batches of the partition that hold the same rows.
        equal_in: for sets of columns (see `column_set`) those that hold the same rows in these columns.
        trace: the inputs of the batch, as (source, partition, version).
        arrival: the fingerprint of its landing file.
        arrived: when that file arrived.
        marks: its dirty marks, oldest first.
        run: the id of the run that builds it now or is about to.
        failures: its failed builds, oldest first.
        rolled_back: when a person rolled it back to an earlier batch; 0.0 where nobody did.
        made_by: which code made the batch; see `MadeBy`.
        accepted: the changes of inputs with which a person has accepted the batch as it is.
        rows_since: since when the partition has these rows, where the batch took the place of one with the same; else
            0.0.
    """

    batch: int = 0
    published: float = 0.0
    equal: Sequence[int] = ()
    trace: Sequence[Sequence[str]] = ()
    arrival: str = ""
    arrived: float = 0.0
    marks: Sequence[Mark] = ()
    run: str = ""
    failures: Sequence[Failure] = ()
    rolled_back: float = 0.0
    made_by: int = MadeBy.DEPLOYED
    equal_in: Mapping[str, Sequence[int]] | None = None
    accepted: Sequence[Accepted] = ()
    rows_since: float = 0.0


class Facts(Protocol):
    """The source from which the planner reads facts."""

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """The facts of these partitions (None: of all) of a dataset, by path; partitions without a fact are absent."""
        ...


class WantedInputs(NamedTuple):
    """For each path of a dataset the upstream paths that it reads; `paths` None: each reads the same path."""

    source: str
    paths: Mapping[str, Sequence[str]] | None


@runtime_checkable
class BulkFacts(Facts, Protocol):
    """Facts that can also say, for many partitions at once, which of them need no judgement (settled.py)."""

    def existing_partitions(self, dataset: str) -> set[str]:
        """The paths of the partitions of a dataset that have a batch."""
        ...

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """The paths of the partitions that may need a judgement.

        Left out are partitions whose only fact is a batch that was made from exactly the current inputs in `reads`, by
        the deployed code or by one that may stay.
        `landing` is the name of the landing folder in traces, "" where there is none. The answer may contain settled
        partitions, but never misses an unsettled one.
        """
        ...


class DatasetInputs(NamedTuple):
    """What a dataset reads, as far as it is known before any partition is.

    Attributes:
        landing: as in `BulkFacts.unsettled`.
        same_path: its upstream datasets, where each partition reads the partitions with its own path; else None.
    """

    dataset: str
    landing: str
    same_path: tuple[str, ...] | None


@runtime_checkable
class FactsOfGraph(BulkFacts, Protocol):
    """Facts that can be asked about many datasets together, which is cheaper than about one after the other."""

    def together(self, asked: Sequence[DatasetInputs], *, existing: bool) -> BulkFacts:
        """The same facts, which know the answers for these datasets; with `existing` their partitions too.

        What changes later is not in the answers.
        """
        ...


NOTHING = Fact()
