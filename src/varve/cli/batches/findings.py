"""What `varve doctor` finds by the catalog, the code and the landing root: what does not fit together, and what to do.

Not here: comparing batches with what lies in a store (`Store.examine`), and machines (hosts.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from varve.catalog.code.generations import Generations
from varve.catalog.history.drops import Drops, declared_name
from varve.catalog.living.killed_builds import KilledBuilds
from varve.cdc.health import capture_findings, captured_sources
from varve.cli.batches.sweep import ORPHANS_OLDER_THAN
from varve.cli.selection import size_text
from varve.model.broken_dataset import UNTOUCHED
from varve.model.errors import counted
from varve.model.inventory import Finding
from varve.planning.arrivals.landing_file import RejectionKind
from varve.sources.landing.unread import unread_folders

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from varve.catalog.catalog import Catalog
    from varve.catalog.history.history import History
    from varve.model.inventory import Leftover
    from varve.planning.graph import Graph

_STRAY = "No sweep touches it; its owner may want to move it to another schema."
_SWEEP = "`varve sweep` clears it away."
_FINISH_DROP = "`varve sweep` finishes that."


@dataclass(frozen=True)
class Look:
    """A look at one dataset (None: at all) of a project.

    Attributes:
        of_others: the datasets of other projects in the same catalog, with their projects.
    """

    history: History
    graph: Graph
    dataset: str | None
    of_others: Mapping[str, str]

    def of_other_projects(self) -> Iterator[Finding]:
        """What is declared here of other projects, and does not fit to what those have or publish."""
        foreign = {
            name: declared
            for name, declared in self.graph.datasets.items()
            if declared.of_project and self._is_meant(name)
        }
        unfit = Generations(self.history.connection).breaking(foreign.values())
        for name, declared in foreign.items():
            owner = self.of_others.get(name)
            if owner != declared.of_project:
                there = f"it belongs to project {owner}" if owner else "no other project has it"
                problem = f"declared as of project {declared.of_project}, and {there}"
                remedy = "Name the project that computes it, or compute it here."
                yield Finding(name, "", None, problem, remedy)
            elif reasons := unfit.get(name):
                why = " ".join(reasons).rstrip(".")
                problem = f"project {owner} publishes it otherwise than it is declared here: {why}"
                remedy = f"Its readers here wait. Declare it as it is: `varve import {name} --print`."
                yield Finding(name, "", None, problem, remedy)
        for name, owner in self.of_others.items():
            if name in self.graph.own and self._is_meant(name):
                problem = f"it belongs to project {owner}, and is declared here too, which counts for nothing"
                remedy = f"Delete the declaration; read it: `varve import {name}`; or take it over: `varve own {name}`."
                yield Finding(name, "", None, problem, remedy)

    def of_drops(self) -> Iterator[Finding]:
        """Datasets that were dropped, and whose drop was not finished."""
        for dropped in Drops(self.history.connection).of(self.dataset):
            if not dropped.finished:
                problem = "it was dropped, and readers by name may still be shown it"
                yield Finding(dropped.name, "", None, problem, _FINISH_DROP)

    def of_undeclared(self, name: str, batches: int) -> Iterator[Finding]:
        """A dataset that the catalog has, and no code declares."""
        if (broken := self.graph.broken_dataset(name)) is None:
            problem = f"the catalog has {counted(batches, 'batch')} of it, and no code declares it"
            yield Finding(name, "", None, problem, f"Declare it again, or end it: `varve drop {name}`.")
        elif not broken.name:
            # For a dataset whose file has errors, `of_broken` says why.
            problem = f"no code declares it, unless {broken.file} does, which cannot be read"
            yield Finding(name, "", None, problem, f"Mend {broken.file} first.")

    def of_broken(self) -> Iterator[Finding]:
        """Datasets that cannot be used as they are written."""
        for broken in self.graph.broken:
            if self._is_meant(broken.name):
                reason = broken.reason.strip(".") if broken.errors else broken.reason
                mended = broken.file if broken.errors else "what it reads"
                problem = f"{broken.state}: {reason}"
                yield Finding(broken.title, "", None, problem, f"{UNTOUCHED} Mend {mended}.")

    def of_dead_runs(self, catalog: Catalog) -> Iterator[Finding]:
        """Batches whose run is gone."""
        for name, path, batch_id in KilledBuilds(catalog.connection).batches():
            if self._is_ours(name):
                yield Finding(name, path, batch_id, "its run ended without a word, killed or cut off", _SWEEP)

    def of_swept(self, kinds: Mapping[str, str]) -> Iterator[Finding]:
        """Batches that were swept, and whose data is there still."""
        for name in [None] if self.dataset is None else kinds:
            for batch in self.history.undeleted(name):
                if batch.dataset not in self.of_others:
                    problem = "it was swept, and its data not deleted yet"
                    yield Finding(declared_name(batch.dataset), batch.partition, batch.batch_id, problem, _SWEEP)

    def of_captures(self, kinds: Mapping[str, str]) -> Iterator[Finding]:
        """What is wrong with captured tables."""
        connection, known = self.history.connection, {*kinds, *self.graph.datasets, *self.of_others}
        for finding in capture_findings(connection, self.dataset):
            if finding.dataset not in self.of_others:
                yield finding
        for name, source in captured_sources(connection, self.dataset).items():
            if name not in known and self.graph.broken_dataset(name) is None:
                problem = f"a capture of {source} was begun, whose source keeps its log for us, and no code declares it"
                yield Finding(name, "", None, problem, f"Declare it again, or end it: `varve drop {name}`.")

    def of_leftovers(self, leftovers: Iterable[Leftover]) -> Iterator[Finding]:
        """What lies in a store and belongs to no batch, by dataset and by what clears it away."""
        left: dict[tuple[str, str], list[Leftover]] = {}
        now = self.history.now()
        for leftover in leftovers:
            if not leftover.dataset and self.dataset is None:
                problem = f"{leftover.location} ({size_text(leftover.size)}) is not ours, in a schema of ours"
                yield Finding("", "", None, problem, _STRAY)
            elif self._is_meant(leftover.dataset) and not leftover.superseded:
                left.setdefault((leftover.dataset, _remedy(leftover, now)), []).append(leftover)
        for (name, remedy), of_name in left.items():
            yield Finding(name, "", None, _of_no_batch(of_name), remedy)

    def _is_meant(self, name: str) -> bool:
        return self.dataset in {None, name}

    def _is_ours(self, name: str) -> bool:
        return self._is_meant(name) and name not in self.of_others


def of_rejected(rejected: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Landing files that are not taken, as `rejected_values` has them: but for those that are early, or past."""
    for file in rejected:
        if file["kind"] not in {RejectionKind.EARLY, RejectionKind.PAST}:
            problem = f"{file['uri']} arrived and is not taken: {file['reason']}"
            remedy = "Mend or remove what was sent; the next look takes it."
            yield Finding(file["dataset"], file["partition"] or "", None, problem, remedy)


def of_unread(landing: str, graph: Graph, of_others: Iterable[str]) -> Iterator[Finding]:
    """Files below the landing root that no dataset reads, as where the name of a folder is misspelt."""
    takes_files = {name for name, dataset in graph.datasets.items() if dataset.landing}
    if not takes_files:
        return
    # Nobody knows what a file with errors would declare.
    broken = {broken.name for broken in graph.broken}
    # Folders of others that are read as tables may be anywhere.
    tables = [str(dataset.external).rstrip("/") for dataset in graph.datasets.values() if dataset.external is not None]
    for folder in unread_folders(landing, {*takes_files, *of_others, *broken}):
        name = folder.replace("/", ".")
        place = f"{landing}/{folder}" if folder else landing
        if folder and any(f"{table}/".startswith(f"{place}/") for table in tables):
            continue
        if name in graph.datasets:
            problem = f"{place} has files, and {name} takes no files that arrive"
            yield Finding("", "", None, problem, "Move them to the dataset that is to take them, or away.")
        else:
            problem = f"{place} has files, and no dataset of this project reads them"
            example = min(takes_files, key=lambda taken: (-SequenceMatcher(None, name, taken).ratio(), taken))
            remedy = f"Those of {example} are read in {landing}/{example.replace('.', '/')}."
            yield Finding("", "", None, problem, remedy)


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
