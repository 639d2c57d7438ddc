"""What a sweep deleted, or would delete, and what it left: as values, and for a person.

Not here: sweeping (sweep.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from varve.cli.printing import Table
from varve.cli.selection import size_text
from varve.model.errors import counted, some

if TYPE_CHECKING:
    from rich.console import Console

_KEPT_BECAUSE = {
    "pinned": "pinned",
    "environment": "an environment needs it",
    "shown": "the Hive table may still show it",
    "recent": "retired too recently, or let go of by an environment",
    "last": "among the last of its partition",
    "declared": "as their datasets say by RETAIN BATCHES",
    "broken": "the files of their datasets have errors, and may say that they are retained",
    "in use": "a run that lives may read it",
}


@dataclass
class Amount:
    """A number of batches or folders, and their size in bytes."""

    count: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        """Count one more, of this size in bytes."""
        self.count += 1
        self.size += size


@dataclass
class Report:
    """What a sweep deleted, or would delete, and what it left."""

    done: bool
    batches: dict[str, Amount] = field(default_factory=dict)
    orphans: dict[str, Amount] = field(default_factory=dict)
    orphan_locations: list[str] = field(default_factory=list)
    kept: dict[str, Amount] = field(default_factory=dict)
    young_orphans: Amount = field(default_factory=Amount)
    ageless: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed_builds: int = 0
    expired_environments: list[str] = field(default_factory=list)
    of_other_projects: list[str] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """Return the report as plain values for `--json`."""
        return asdict(self)


def show(console: Console, report: Report) -> None:
    """Print the report."""
    table = Table("dataset", "batches", "size", "orphans", "size", title_justify="left",
                  title="Swept" if report.done else "Would be swept")  # fmt: skip
    for name in sorted({*report.batches, *report.orphans}):
        batches, orphans = report.batches.get(name, Amount()), report.orphans.get(name, Amount())
        table.add_row(
            name, f"{batches.count:,}", size_text(batches.size), f"{orphans.count:,}", size_text(orphans.size)
        )
    console.print(table if table.row_count else f"No batch {'was' if report.done else 'is'} to be swept.")
    if report.expired_environments:
        what = "Forgotten" if report.done else "Would be forgotten, with what only they need"
        console.print(
            f"{what}: environments that nobody used for their time: {', '.join(report.expired_environments)}."
        )
    if report.failed_builds:
        console.print(
            f"Closed: {counted(report.failed_builds, 'build')} of runs that were killed; they had published nothing."
        )
    for why, amount in sorted(report.kept.items()):
        console.print(
            f"Left: {counted(amount.count, 'retired batch')}, {size_text(amount.size)}: {_KEPT_BECAUSE[why]}."
        )
    if report.young_orphans.count:
        console.print(
            f"Left: {counted(report.young_orphans.count, 'folder')} of no batch, "
            f"{size_text(report.young_orphans.size)}: too young, a run may still be writing them."
        )
    for location in report.ageless:
        console.print(f"Left: {location}: of no batch, and nobody can say how old it is.", soft_wrap=True)
    for location in report.strays:
        message = f"Not ours: {location}, in a schema of Varve's. It stays; its owner may want to move it elsewhere."
        console.print(message, soft_wrap=True)
    if report.of_other_projects:
        names = some(report.of_other_projects, limit=3)
        console.print(f"Left: what belongs to other projects, which sweep it themselves: {names}.", soft_wrap=True)
    for problem in report.problems:
        console.print(f"Left: {problem}", markup=False, soft_wrap=True)
    if not report.done:
        console.print("Nothing was changed: this was a dry run.")
