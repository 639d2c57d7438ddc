"""Code as an input: whether a partition was made by the deployed code, and what follows where it was not.

Not here: the version of a dataset's code (varve/sql/code/version.py), and where deployments are kept
(varve/catalog/code/deployments.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from varve.model.policy import OnCodeChange


class MadeBy(IntEnum):
    """The code that made a current batch.

    The deployed one, another one, or another one that a decision lets stay. Of one that is LEFT_ALONE, which only an
    environment has, production decides: it is no reason to compute the partition, and nothing keeps it as it is.
    """

    DEPLOYED = 0
    OTHER = 1
    ACCEPTED = 2
    LEFT_ALONE = 3


@dataclass(frozen=True, slots=True)
class CodeState:
    """The code of one dataset, as a process that plans has it.

    Attributes:
        version: the version of the process's own code.
        deployed: the version that is deployed.
        decision: what was decided for partitions of other code when that was deployed.
        may_be_mixed: whether current batches may have been made by other code.
        evolving: the dataset, or one that it reads, whose declaration here is of a generation that readers do not see
            yet; "" where there is none.
        of_project: the project of that dataset, where it is another one.
        owner: the other project to which the dataset belongs; "" where it belongs to this one or to none.
        since: when code of the dataset was first deployed, in seconds since 1970; 0.0: it does not matter.
        deployed_at: when the deployed code was deployed with its decision, where other code was before; else 0.0.
        changed_at: when it took the place of other code; else 0.0. What failed before was of other code. The same code
            may be deployed again, with another decision: then it is before `deployed_at`.
    """

    version: str = ""
    deployed: str = ""
    decision: OnCodeChange = OnCodeChange.REBUILD
    may_be_mixed: bool = False
    evolving: str = ""
    of_project: str = ""
    owner: str = ""
    since: float = 0.0
    deployed_at: float = 0.0
    changed_at: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether the process has other code than is deployed, or none that may be: then it plans nothing of it."""
        return bool(self.owner or self.evolving) or (
            bool(self.version and self.deployed) and self.version != self.deployed
        )


SAME_CODE = CodeState()


def hold_reason(code: CodeState, made_by: int, *, marked: bool) -> str:
    """Why a partition that should be computed is not, for the sake of its code; "" where nothing speaks against it.

    `marked`: whether a person asked for this partition.
    """
    if code.owner or code.evolving:
        return _owner_or_generation(code)
    if code.differs:
        return (
            f"the code here ({code.version}) is not the one that is deployed ({code.deployed}); `varve plan` shows "
            "what it changes, `varve apply` deploys it"
        )
    if code.decision is OnCodeChange.HOLD and code.may_be_mixed:
        return (
            "other partitions were made by other code than is deployed, and the table would mix the two; "
            "`varve apply --rebuild` or `--forward-from` decides"
        )
    if keeps_earlier(code, made_by) and not marked:
        return "it was made by earlier code, which stays for windows before the boundary; `varve backfill` computes it"
    return ""


def is_outdated(code: CodeState, made_by: int) -> bool:
    """Whether a batch is to be computed again because other code made it than is deployed."""
    return made_by == MadeBy.OTHER and code.decision is not OnCodeChange.HOLD and not code.differs


def keeps_earlier(code: CodeState, made_by: int) -> bool:
    """Whether a batch stays as earlier code has made it, because the code goes forward from a later window."""
    return code.decision is OnCodeChange.FORWARD and made_by == MadeBy.ACCEPTED


def _owner_or_generation(code: CodeState) -> str:
    if code.owner:
        return f"it belongs to project {code.owner}, which alone computes it"
    if code.of_project:
        return (
            f"project {code.of_project} publishes {code.evolving} otherwise than it is declared here; `varve import "
            f"{code.evolving} --print` shows how it is now"
        )
    return (
        f"{code.evolving} is declared here as another generation than readers see; `varve evolve {code.evolving}` "
        "builds it and moves them"
    )
