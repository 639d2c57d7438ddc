"""`BrokenDataset`: a dataset that the project declares, but that cannot be computed as it is written.

Not here: what is wrong with a file (varve/sql/checks/problems.py), and what Dagster shows of it
(varve/dagster/assets/broken.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.errors import VarveError, some

if TYPE_CHECKING:
    from varve.model.partitions.partitioning import Partitioning

UNTOUCHED = "Its data stays as it is, readers go on reading it, and nothing of it is computed or retired."


@dataclass(frozen=True)
class BrokenDataset:
    """A dataset whose file has an error, or that reads such a dataset. It is not computed until the file is mended.

    Attributes:
        name: `db.table`; empty where the error hides the name.
        file: the file that declares it, as messages show it.
        errors: the errors of that file, each with `file:line:col`; empty where only an upstream dataset is broken.
        waits_for: the names of the upstream datasets that cannot be used.
        causes: the first error of each upstream file that must be mended; one line for each.
        reads: the names of the datasets that it reads.
        partitioning: its partitions, where the file could be read far enough.
        rejected: the name of the dataset for its rejected rows, which nothing else declares; empty where it has none.
    """

    name: str
    file: str
    errors: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    partitioning: Partitioning | None = None
    rejected: str = ""

    @property
    def title(self) -> str:
        """The name of the dataset, or of its file where the name is not known."""
        return self.name or self.file

    @property
    def state(self) -> str:
        """`broken` where its own file has an error; `on hold` where it reads a dataset that is broken."""
        return "broken" if self.errors else "on hold"

    @property
    def reason(self) -> str:
        """Why it cannot be used, with the place of every error; several lines where its own file has several errors."""
        if self.errors:
            return "\n".join(self.errors)
        return f"it reads {some(self.waits_for)}: {some(self.causes) or 'it cannot be used as it is'}"

    @property
    def headline(self) -> str:
        """The reason in one line: the first error, without the quoted text of the file."""
        if not self.errors:
            return self.reason
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        return self.errors[0].splitlines()[0] + more


class DatasetIsBroken(VarveError):
    """A command or a run asked for a dataset whose file cannot be used as it is written."""

    def __init__(self, broken: BrokenDataset) -> None:
        self.broken = broken
        super().__init__(f"{broken.title} is {broken.state}. {UNTOUCHED}\n{broken.reason}")
