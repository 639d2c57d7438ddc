"""`BrokenDataset`: a dataset that the code declares and that cannot be computed as it is written.

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
    """A dataset whose file has an error, or that reads one. It is computed no more until the file is mended.

    Attributes:
        name: `db.table`; empty where the file is so wrong that it does not say.
        file: the file that declares it, as messages show it.
        errors: what is wrong with that file, each with `file:line:col`; none where only what it reads is broken.
        waits_for: the datasets that it reads and that cannot be used.
        causes: the first error of each file, upstream of it, that is to be mended; a line each.
        reads: the datasets that it reads.
        partitioning: its partitions, where the file tells them.
        rejected: the dataset of its rejected rows, which nobody else declares; empty where it has none.
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
        """Its name; that of its file where it has none."""
        return self.name or self.file

    @property
    def state(self) -> str:
        """`broken`: its own file is wrong; `on hold`: it reads a dataset that is broken."""
        return "broken" if self.errors else "on hold"

    @property
    def reason(self) -> str:
        """Why, with every place: of several lines where its own file is wrong."""
        if self.errors:
            return "\n".join(self.errors)
        return f"it reads {some(self.waits_for)}: {some(self.causes) or 'it cannot be used as it is'}"

    @property
    def headline(self) -> str:
        """The same in one line: the first error, without the text that it is about."""
        if not self.errors:
            return self.reason
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        return self.errors[0].splitlines()[0] + more


class DatasetIsBroken(VarveError):
    """Somebody asks for a dataset that cannot be used as its file is written."""

    def __init__(self, broken: BrokenDataset) -> None:
        self.broken = broken
        super().__init__(f"{broken.title} is {broken.state}. {UNTOUCHED}\n{broken.reason}")
