"""What is known of a partition when it is judged: its batch, its file, marks, the run that builds it, failures.

Plain tuples, as there may be a million of them. Instants are seconds since 1970.

Not here: where facts come from (varve/catalog/planning/facts.py) and what follows from them (judging.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Failure(NamedTuple):
    """A build that failed: when it began and ended, and how many partitions it was of."""

    began: float
    ended: float
    together: int


class Mark(NamedTuple):
    """A dirty mark: this partition is to be computed again, whatever it was made from.

    Attributes:
        number: grows with time, as batch ids do and together with them: a batch with a higher id takes the mark away.
        backfill: whose mark it is.
        held: whether the backfill is paused.
    """

    number: int
    reason: str
    backfill: int
    held: bool = False


class Fact(NamedTuple):
    """All that is known of one partition; each default means that there is nothing of the kind.

    Attributes:
        batch: the id of the current batch, which is the millisecond at which its run began.
        published: since when that is in force.
        equal: ids of earlier batches of the partition that hold the same rows.
        trace: what the batch was made from, as (source, partition, version).
        arrival: the fingerprint of its landing file, which arrived at `arrived`.
        run: the run that builds it now or is about to.
        held: when a person took its batch back.
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
    held: float = 0.0


class Facts(Protocol):
    """Where the planner looks facts up."""

    def of(self, dataset: str, paths: Collection[str] | None) -> Mapping[str, Fact]:
        """The facts of these partitions (None: of all) of a dataset, by path; of those of which any is known."""
        ...


class WantedInputs(NamedTuple):
    """What partitions of a dataset want of one that it reads; `paths` None: each wants the one of the same path."""

    source: str
    paths: Mapping[str, Sequence[str]] | None


@runtime_checkable
class BulkFacts(Facts, Protocol):
    """Facts that also tell, many partitions at once, which of them are not worth a look (settled.py)."""

    def there(self, dataset: str) -> set[str]:
        """The partitions of a dataset that have a batch."""
        ...

    def unsettled(self, dataset: str, landing: str, reads: Sequence[WantedInputs]) -> set[str]:
        """The partitions of which anything is known but a batch made from exactly what they want, as it is now.

        `landing` is how a trace names the landing folder, "" where there is none. It may name more than there are, and
        never fewer: each one that it names is judged.
        """
        ...


NOTHING = Fact()
