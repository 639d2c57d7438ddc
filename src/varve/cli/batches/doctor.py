"""`varve doctor | repair`: find, and mend, every difference between the catalog, the stores and what readers see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.code.shown import as_shown
from varve.catalog.history.drops import is_dropped
from varve.catalog.history.history import History
from varve.catalog.recovery.recovery import recover
from varve.cli.batches.findings import Look, of_rejected, of_unread
from varve.cli.batches.history import built, opened
from varve.cli.batches.hosts import of_hosts
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.problems.rejected import rejected_values
from varve.model.dataset import store_names
from varve.model.errors import counted
from varve.model.inventory import LOST_DATA, Finding
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.recovery.recovery import Recovered
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

# So many findings that say the same of partitions of one dataset are printed one by one.
_MOST_ALIKE = 5
_OF_THE_PAST = (
    "It is not current in production, so that nothing is to be run again there; who wants to go back to it puts it "
    "back from a copy first."
)


@dataclass
class Examined:
    """How many datasets and batches were compared, and the differences that were found."""

    datasets: int = 0
    batches: int = 0
    findings: list[Finding] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """Return the result as plain values for `--json`."""
        return {
            "rejected": self.rejected,
            "datasets": self.datasets,
            "batches": self.batches,
            "findings": [
                {
                    "dataset": finding.dataset,
                    "partition": finding.partition or None,
                    "batch_id": finding.batch_id.millis if finding.batch_id else None,
                    "problem": finding.problem,
                    "remedy": finding.remedy,
                }
                for finding in self.findings
            ],
        }


@dataclass
class Repaired:
    """What was mended, and the findings that could not be mended."""

    shown: dict[str, int] = field(default_factory=dict)
    recovered: list[Recovered] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """Return the result as plain values for `--json`."""
        return {
            "shown": self.shown,
            "recovered": [
                {"dataset": rebuilt.dataset, "batches": rebuilt.batches, "current": rebuilt.current}
                for rebuilt in self.recovered
            ],
            **Examined(findings=self.findings).as_values(),
        }


def doctor(dataset: str | None, *, deep: bool = False) -> Examined:
    """Compare catalog, stores and views for one dataset or for all; nothing is changed. `deep` reads all data."""
    settings, graph, examined = chosen_settings(), chosen_graph(), Examined()
    with opened() as history:
        catalog = Catalog(history.connection)
        kinds = built(history, dataset)
        of_others = Owners(history.connection, graph.project).others()
        look = Look(history, graph, dataset, of_others)
        examined.findings += look.of_other_projects()
        examined.findings += of_hosts(history, settings, _session) if dataset is None else []
        examined.findings += look.of_drops()
        for name in kinds:
            if is_dropped(name) or name in of_others:
                continue
            present = history.present(name)
            declared = graph.datasets.get(name)
            if declared is None and not present:
                # Only failed batches are left of a declaration that was withdrawn: nobody can miss anything.
                continue
            examined.datasets += 1
            examined.batches += len(present)
            if declared is None:
                examined.findings += look.of_undeclared(name, len(present))
            else:
                examined.findings += _examine(catalog, declared, present, deep=deep)
        examined.findings += look.of_broken()
        examined.findings += look.of_dead_runs(catalog)
        examined.findings += look.of_swept(kinds)
        examined.rejected = [
            rejected_file
            for rejected_file in rejected_values(history.connection)
            if dataset in {None, rejected_file["dataset"]} and rejected_file["dataset"] not in of_others
        ]
        examined.findings += of_rejected(examined.rejected)
        examined.findings += of_unread(settings.landing, graph, of_others) if dataset is None else []
        examined.findings += look.of_captures(kinds)
        for kind in sorted(set(kinds.values())):
            leftovers = open_store(kind, settings, catalog, _session).leftovers()
            examined.findings += look.of_leftovers(leftovers)
    return examined


def _examine(catalog: Catalog, dataset: Dataset, present: Sequence[Batch], *, deep: bool) -> Sequence[Finding]:
    if Generations(catalog.connection).breaking([dataset]):
        problem = "it is declared here as another generation than readers see"
        return [Finding(dataset.name, "", None, problem, f"`varve evolve {dataset}` builds it, and moves readers.")]
    store = open_store(dataset.store, chosen_settings(), catalog, _session)
    findings = store.examine(dataset, present, deep=deep)
    if findings:
        # What is published, followed or swept meanwhile was looked at before and after. It is none at a second look.
        found = {(finding.partition, finding.batch_id) for finding in findings}
        still_present = [
            batch for batch in History(catalog.connection).present(dataset.name)
            if (batch.partition, batch.batch_id) in found
        ]  # fmt: skip
        again = set(store.examine(dataset, still_present, deep=deep))
        findings = [finding for finding in findings if finding in again]
    current = {path: batch.batch_id for path, batch in catalog.current(dataset.name).items()}
    return [
        replace(finding, remedy=_OF_THE_PAST)
        if finding.remedy in LOST_DATA and finding.batch_id != current.get(finding.partition)
        else finding
        for finding in findings
    ]


def repair(dataset: str | None, *, from_storage: bool) -> Repaired:
    """Show readers what the catalog says is current; with `from_storage` first rebuild the catalog from the stores."""
    settings, repaired = chosen_settings(), Repaired()
    with opened() as history:
        catalog = Catalog(history.connection)
        if from_storage:
            for kind in store_names():
                for inventory in open_store(kind, settings, catalog, _session).inventory():
                    if dataset in {None, inventory.dataset}:
                        recovered = recover(catalog.connection, kind, inventory)
                        repaired.recovered.append(recovered)
                        repaired.findings += recovered.findings
        of_others = Owners(history.connection, chosen_graph().project).others()
        for name in built(history, dataset):
            declared = chosen_graph().datasets.get(name)
            if (
                name not in of_others
                and declared is not None
                and not Generations(history.connection).breaking([declared])
            ):
                store = open_store(declared.store, settings, catalog, _session)
                repaired.shown[name] = store.repair(as_shown(history.connection, declared))
    return repaired


def show_examined(console: Console, examined: Examined) -> None:
    """Print what the doctor found."""
    if not examined.findings:
        batches, datasets = counted(examined.batches, "batch"), counted(examined.datasets, "dataset")
        console.print(
            f"[green]All is well:[/] {batches} of {datasets} lie where the catalog says, and readers are shown what is "
            "current."
        )
        return
    _show(console, "Differences", examined.findings)


def show_repaired(console: Console, repaired: Repaired) -> None:
    """Print what was mended."""
    for recovered in repaired.recovered:
        console.print(
            f"{recovered.dataset}: {counted(recovered.batches, 'batch')} found again, "
            f"{recovered.current:,} of them made current."
        )
    for name, count in repaired.shown.items():
        if count:
            console.print(f"{name}: mended {counted(count, 'partition')} that readers were shown at another batch.")
    if repaired.findings:
        _show(console, "Not mended", repaired.findings)
    if not repaired.findings and not any(repaired.shown.values()) and not repaired.recovered:
        console.print(
            "Nothing was to be mended: readers are shown what the catalog says is current. Whether its data is as it "
            "was published, varve doctor looks.", highlight=False,
        )  # fmt: skip


def _show(console: Console, title: str, findings: list[Finding]) -> None:
    console.print(f"[bold]{title}[/]")
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        problem = finding.problem.replace(str(finding.batch_id), "")
        alike.setdefault((finding.dataset, problem, finding.remedy), []).append(finding)
    for group in alike.values():
        # Of a view that is gone each partition says so, and what else was found would be lost among them.
        shown = group if len(group) <= _MOST_ALIKE else group[: _MOST_ALIKE - 1]
        _show_all(console, shown)
        if more := len(group) - len(shown):
            console.print(
                f"- {group[0].dataset}: {more:,} more partitions of which the same was found; --json lists them.",
                markup=False, highlight=False,
            )  # fmt: skip


def _show_all(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings:
        which = f" batch {finding.batch_id}" if finding.batch_id else ""
        place = " ".join(part for part in (finding.dataset, finding.partition) if part)
        # What is found of a machine or a folder is of no dataset, and what is found may be a sentence already.
        found = f"{f'{place}{which}: ' if place else ''}{finding.problem.rstrip('.')}"
        console.print(f"- {found}. {finding.remedy}", markup=False, highlight=False)


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
