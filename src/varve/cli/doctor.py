"""`varve doctor | repair`: every difference between catalog, stores and what readers are shown; and mending it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.recovery.recovery import recover
from varve.cdc.health import capture_findings
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.history import built, opened
from varve.cli.rejected import rejected_values
from varve.cli.selection import size_text
from varve.model.broken_dataset import UNTOUCHED
from varve.model.dataset import StoreKind
from varve.model.errors import counted
from varve.model.inventory import Finding
from varve.planning.arrivals.arrivals import RejectionKind
from varve.stores.open import open_store

if TYPE_CHECKING:
    from rich.console import Console

    from varve.catalog.recovery.recovery import Recovered

_STRAY = "No sweep touches it; its owner may want to move it to another schema."
_SWEEP = "`varve sweep` clears it away."


@dataclass
class Examined:
    """What was looked at and what was found."""

    datasets: int = 0
    batches: int = 0
    findings: list[Finding] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "rejected": self.rejected,
            "datasets": self.datasets,
            "batches": self.batches,
            "findings": [
                {
                    "dataset": one.dataset,
                    "partition": one.partition or None,
                    "batch_id": one.batch_id.millis if one.batch_id else None,
                    "found": one.found,
                    "remedy": one.remedy,
                }
                for one in self.findings
            ],
        }


@dataclass
class Repaired:
    """What was mended, and what could not be."""

    shown: dict[str, int] = field(default_factory=dict)
    recovered: list[Recovered] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "shown": self.shown,
            "recovered": [
                {"dataset": one.dataset, "batches": one.batches, "in_force": one.in_force} for one in self.recovered
            ],
            **Examined(findings=self.findings).as_values(),
        }


def doctor(dataset: str | None, *, deep: bool = False) -> Examined:
    """Compare everything of one dataset, or of all; changes nothing. `deep` reads all data."""
    settings, found = chosen_settings(), Examined()
    with opened() as history:
        catalog = Catalog(history.connection)
        kinds = built(history, dataset)
        for name in kinds:
            present = history.present(name)
            found.datasets += 1
            found.batches += len(present)
            declared = chosen_graph().datasets.get(name)
            if declared is None and (broken := chosen_graph().broken_dataset(name)) is not None:
                # Of a dataset that cannot be used, the line below says why.
                if not broken.name:
                    text = f"no code declares it, unless {broken.file} does, which cannot be read"
                    found.findings.append(Finding(name, "", None, text, f"Mend {broken.file} first."))
                continue
            if declared is None:
                text = f"the catalog has {counted(len(present), 'batch')} of it, and no code declares it"
                found.findings.append(Finding(name, "", None, text, "Declare it again, or leave it to its readers."))
                continue
            found.findings += open_store(declared.store, settings, catalog, _session).examine(
                declared, present, deep=deep
            )
        found.findings += [
            Finding(each.title, "", None, f"{each.state}: {each.reason.strip('.')}", f"{UNTOUCHED} Mend {each.file}.")
            if each.errors
            else Finding(each.title, "", None, f"{each.state}: {each.reason}", f"{UNTOUCHED} Mend what it reads.")
            for each in chosen_graph().broken
            if dataset in {None, each.name}
        ]
        found.findings += [
            Finding(name, path, batch_id, "its run ended without a word, killed or cut off", _SWEEP)
            for name, path, batch_id in catalog.dead()
            if dataset in {None, name}
        ]
        found.findings += [
            Finding(one.dataset, one.partition, one.batch_id, "it was swept, and its data not deleted yet", _SWEEP)
            for one in history.undeleted(dataset)
        ]
        found.rejected = [one for one in rejected_values(history.connection) if dataset in {None, one["dataset"]}]
        for one in found.rejected:
            if one["kind"] != RejectionKind.EARLY:
                text = f"{one['uri']} arrived and is not taken: {one['reason']}"
                remedy = "Mend or remove what was sent; the next look takes it."
                found.findings.append(Finding(one["dataset"], one["partition"] or "", None, text, remedy))
        found.findings += capture_findings(history.connection, dataset)
        for kind in sorted(set(kinds.values())):
            for leftover in open_store(StoreKind(kind), settings, catalog, _session).leftovers():
                if not leftover.dataset and dataset is None:
                    text = f"{leftover.location} ({size_text(leftover.size)}) is not ours, in a schema of ours"
                    found.findings.append(Finding("", "", None, text, _STRAY))
                elif dataset in {None, leftover.dataset}:
                    text = f"{leftover.location} ({size_text(leftover.size)}) belongs to no batch"
                    found.findings.append(Finding(leftover.dataset, "", None, text, _SWEEP))
    return found


def repair(dataset: str | None, *, from_storage: bool) -> Repaired:
    """Bring what readers are shown in step with the catalog; with `from_storage` first rebuild the catalog itself."""
    settings, done = chosen_settings(), Repaired()
    with opened() as history:
        catalog = Catalog(history.connection)
        if from_storage:
            for kind in StoreKind:
                for remains in open_store(kind, settings, catalog, _session).remains():
                    if dataset in {None, remains.dataset}:
                        recovered = recover(catalog.connection, kind, remains)
                        done.recovered.append(recovered)
                        done.findings += recovered.findings
        for name in built(history, dataset):
            declared = chosen_graph().datasets.get(name)
            if declared is not None:
                done.shown[name] = open_store(declared.store, settings, catalog, _session).mend(declared)
    return done


def show_examined(console: Console, examined: Examined) -> None:
    """What the doctor found, for people."""
    if not examined.findings:
        console.print(
            f"[green]All is well:[/] {counted(examined.batches, 'batch')} of {examined.datasets} datasets lie where "
            "the catalog says, and readers are shown what is current."
        )
        return
    _show(console, "Differences", examined.findings)


def show_repaired(console: Console, repaired: Repaired) -> None:
    """What was mended, for people."""
    for one in repaired.recovered:
        console.print(
            f"{one.dataset}: {counted(one.batches, 'batch')} found again, {one.in_force:,} of them put in force."
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
    for one in findings:
        which = f" batch {one.batch_id}" if one.batch_id else ""
        place = " ".join(part for part in (one.dataset, one.partition) if part)
        console.print(f"- {place}{which}: {one.found}. {one.remedy}", markup=False, highlight=False)


def _session() -> Any:
    from varve.services.spark import open_session

    return open_session(chosen_settings())
