"""`varve doctor | repair`: find, and mend, every difference between the catalog, the stores and what readers see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.catalog.history.drops import Drops, declared_name, is_dropped
from varve.catalog.recovery.recovery import recover
from varve.cdc.health import capture_findings, captured_sources
from varve.cli.batches.history import built, opened
from varve.cli.batches.hosts import of_hosts
from varve.cli.batches.sweep import ORPHANS_OLDER_THAN
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.problems.rejected import rejected_values
from varve.cli.selection import size_text
from varve.model.broken_dataset import UNTOUCHED
from varve.model.errors import counted
from varve.model.inventory import Finding
from varve.planning.arrivals.landing_file import RejectionKind
from varve.stores.open import open_store, store_names

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from varve.catalog.history.history import History
    from varve.catalog.recovery.recovery import Recovered
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.inventory import Leftover

_STRAY = "No sweep touches it; its owner may want to move it to another schema."
_SWEEP = "`varve sweep` clears it away."
_FINISH_DROP = "`varve sweep` finishes that."


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
    settings, examined = chosen_settings(), Examined()
    with opened() as history:
        catalog = Catalog(history.connection)
        kinds = built(history, dataset)
        of_others = Owners(history.connection, chosen_graph().project).others()
        examined.findings += _of_other_projects(history, dataset, of_others)
        examined.findings += of_hosts(history, settings, _session) if dataset is None else []
        examined.findings += [
            Finding(dropped.name, "", None, "it was dropped, and readers by name may still be shown it", _FINISH_DROP)
            for dropped in Drops(history.connection).of(dataset)
            if not dropped.finished
        ]
        for name in kinds:
            if is_dropped(name) or name in of_others:
                continue
            present = history.present(name)
            declared = chosen_graph().datasets.get(name)
            if declared is None and not present:
                # Only failed batches are left of a declaration that was withdrawn: nobody can miss anything.
                continue
            examined.datasets += 1
            examined.batches += len(present)
            if declared is None and (broken := chosen_graph().broken_dataset(name)) is not None:
                # For a dataset whose file has errors, the findings of broken datasets below say why.
                if not broken.name:
                    problem = f"no code declares it, unless {broken.file} does, which cannot be read"
                    examined.findings.append(Finding(name, "", None, problem, f"Mend {broken.file} first."))
                continue
            if declared is None:
                problem = f"the catalog has {counted(len(present), 'batch')} of it, and no code declares it"
                examined.findings.append(
                    Finding(name, "", None, problem, f"Declare it again, or end it: `varve drop {name}`.")
                )
                continue
            examined.findings += _examine(catalog, declared, present, deep=deep)
        examined.findings += [
            Finding(
                broken_dataset.title,
                "",
                None,
                f"{broken_dataset.state}: {broken_dataset.reason.strip('.')}",
                f"{UNTOUCHED} Mend {broken_dataset.file}.",
            )
            if broken_dataset.errors
            else Finding(
                broken_dataset.title,
                "",
                None,
                f"{broken_dataset.state}: {broken_dataset.reason}",
                f"{UNTOUCHED} Mend what it reads.",
            )
            for broken_dataset in chosen_graph().broken
            if dataset in {None, broken_dataset.name}
        ]
        examined.findings += [
            Finding(name, path, batch_id, "its run ended without a word, killed or cut off", _SWEEP)
            for name, path, batch_id in catalog.dead_batches()
            if dataset in {None, name} and name not in of_others
        ]
        examined.findings += [
            Finding(
                declared_name(batch.dataset),
                batch.partition,
                batch.batch_id,
                "it was swept, and its data not deleted yet",
                _SWEEP,
            )
            for name in ([None] if dataset is None else kinds)
            for batch in history.undeleted(name)
            if batch.dataset not in of_others
        ]
        examined.rejected = [
            rejected_file
            for rejected_file in rejected_values(history.connection)
            if dataset in {None, rejected_file["dataset"]} and rejected_file["dataset"] not in of_others
        ]
        for rejected_file in examined.rejected:
            if rejected_file["kind"] != RejectionKind.EARLY:
                problem = f"{rejected_file['uri']} arrived and is not taken: {rejected_file['reason']}"
                remedy = "Mend or remove what was sent; the next look takes it."
                examined.findings.append(
                    Finding(rejected_file["dataset"], rejected_file["partition"] or "", None, problem, remedy)
                )
        examined.findings += [
            finding for finding in capture_findings(history.connection, dataset) if finding.dataset not in of_others
        ]
        examined.findings += [
            Finding(
                name,
                "",
                None,
                f"a capture of {source} was begun, whose source keeps its log for us, and no code declares it",
                f"Declare it again, or end it: `varve drop {name}`.",
            )
            for name, source in captured_sources(history.connection, dataset).items()
            if name not in kinds and name not in chosen_graph().datasets and name not in of_others
            if chosen_graph().broken_dataset(name) is None
        ]
        for kind in sorted(set(kinds.values())):
            left: dict[tuple[str, str], list[Leftover]] = {}
            now = history.now()
            for leftover in open_store(kind, settings, catalog, _session).leftovers():
                if not leftover.dataset and dataset is None:
                    problem = f"{leftover.location} ({size_text(leftover.size)}) is not ours, in a schema of ours"
                    examined.findings.append(Finding("", "", None, problem, _STRAY))
                elif dataset in {None, leftover.dataset} and not leftover.superseded:
                    left.setdefault((leftover.dataset, _remedy(leftover, now)), []).append(leftover)
            examined.findings += [
                Finding(name, "", None, _of_no_batch(leftovers), remedy) for (name, remedy), leftovers in left.items()
            ]
    return examined


def _of_no_batch(leftovers: Sequence[Leftover]) -> str:
    size = size_text(sum(leftover.size for leftover in leftovers))
    if len(leftovers) == 1:
        return f"{leftovers[0].location} ({size}) belongs to no batch"
    return f"{len(leftovers):,} places ({size}) belong to no batch, such as {leftovers[0].location}"


def _remedy(leftover: Leftover, now: dt.datetime) -> str:
    """What clears a leftover away: one that a run may still write, not yet."""
    if leftover.changed_at is None:
        return "Nobody can say how old it is, so no sweep touches it; where nothing runs, delete it."
    if leftover.changed_at < now - ORPHANS_OLDER_THAN:
        return _SWEEP
    return (
        "A run that was killed has left it, or one writes it. `varve sweep` clears it away a day after it was written; "
        "where nothing runs, `varve sweep --orphans-older-than 0` does so now."
    )


def _of_other_projects(history: History, dataset: str | None, of_others: Mapping[str, str]) -> Sequence[Finding]:
    """What is declared here of other projects, and does not fit to what those have or publish."""
    graph, findings = chosen_graph(), []
    foreign = {
        name: declared for name, declared in graph.datasets.items() if declared.of_project and dataset in {None, name}
    }
    unfit = Generations(history.connection).breaking(foreign.values())
    for name, declared in foreign.items():
        owner = of_others.get(name)
        if owner != declared.of_project:
            there = f"it belongs to project {owner}" if owner else "no other project has it"
            problem = f"declared as of project {declared.of_project}, and {there}"
            findings.append(Finding(name, "", None, problem, "Name the project that computes it, or compute it here."))
        elif reasons := unfit.get(name):
            problem = (
                f"project {owner} publishes it otherwise than it is declared here: {' '.join(reasons).rstrip('.')}"
            )
            remedy = f"Its readers here wait. Declare it as it is: `varve import {name} --print`."
            findings.append(Finding(name, "", None, problem, remedy))
    for name, owner in of_others.items():
        if name in graph.own and dataset in {None, name}:
            problem = f"it belongs to project {owner}, and is declared here too, which counts for nothing"
            remedy = f"Delete the declaration; read it: `varve import {name}`; or take it over: `varve own {name}`."
            findings.append(Finding(name, "", None, problem, remedy))
    return findings


def _examine(catalog: Catalog, dataset: Dataset, present: Sequence[Batch], *, deep: bool) -> Sequence[Finding]:
    if Generations(catalog.connection).breaking([dataset]):
        problem = "it is declared here as another generation than readers see"
        return [Finding(dataset.name, "", None, problem, f"`varve evolve {dataset}` builds it, and moves readers.")]
    return open_store(dataset.store, chosen_settings(), catalog, _session).examine(dataset, present, deep=deep)


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
                repaired.shown[name] = open_store(declared.store, settings, catalog, _session).repair(declared)
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
        console.print("Nothing was to be mended.")


def _show(console: Console, title: str, findings: list[Finding]) -> None:
    console.print(f"[bold]{title}[/]")
    for finding in findings:
        which = f" batch {finding.batch_id}" if finding.batch_id else ""
        place = " ".join(part for part in (finding.dataset, finding.partition) if part)
        console.print(f"- {place}{which}: {finding.problem}. {finding.remedy}", markup=False, highlight=False)


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
