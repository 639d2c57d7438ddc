"""What follows for the partitions that other code has made: decided by a policy, or by a person who applies a plan.

Not here: where it is kept (deployments.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.policy import OnCodeChange, instant_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows for the partitions that other code has made, and where that was decided.

    Attributes:
        forward_from: for FORWARD: the begin of the first window that the new code makes, as an ISO 8601 text; without
            a UTC offset it is meant in the time zone of the dataset's windows.
        plan: the number of the plan that a person applied; None where the policy of the dataset decides.
    """

    kind: OnCodeChange
    forward_from: str = ""
    plan: int | None = None

    @classmethod
    def of_policy(cls, dataset: Dataset) -> Decision:
        """What the declaration of a dataset says."""
        return cls(dataset.policy.on_code_change, dataset.policy.forward_from)

    def instant(self, dataset: Dataset) -> float | None:
        """The boundary of FORWARD for a dataset, in seconds since 1970; None for other decisions."""
        if self.kind is not OnCodeChange.FORWARD:
            return None
        time = dataset.partitioning.time
        return instant_of(self.forward_from, time.calendar.timezone if time else "UTC")


def before(dataset: Dataset, batches: Mapping[str, int], instant: float | None) -> dict[str, int]:
    """The batches of windows that begin before an instant; also those of partitions that the dataset has no more."""
    time = dataset.partitioning.time
    if time is None or instant is None:
        raise VarveError(
            f"{dataset}: to go forward from a date it needs a time dimension, and it has none. Nothing was changed."
        )
    return {path: batch_id for path, batch_id in batches.items() if begins_before(dataset, path, instant)}


def staying(dataset: Dataset, batches: Mapping[str, int]) -> dict[str, int]:
    """Those of the batches of other code that the policy of a dataset lets stay: none, unless it goes forward."""
    decision = Decision.of_policy(dataset)
    return {} if decision.kind is not OnCodeChange.FORWARD else before(dataset, batches, decision.instant(dataset))


def begins_before(dataset: Dataset, path: str, instant: float) -> bool:
    """Whether the window of a partition begins before an instant; so does one that the dataset has no more."""
    time = dataset.partitioning.time
    assert time is not None, "a boundary is one of windows"
    try:
        return time.start_of(time.value_in(dataset.partitioning.from_path(path))) < instant
    except VarveError:
        return True
