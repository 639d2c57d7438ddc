"""What a change of code means: which datasets differ from what is deployed, and which partitions that concerns.

Nobody is asked whether a change is a breaking one: columns, readers and partitions follow from the graph.

Not here: the code versions (varve/sql/code/version.py), and keeping and applying a plan (varve/catalog/code/plans.py).
"""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from varve.model.errors import VarveError
from varve.model.evolution import widens
from varve.model.schema import ColumnType
from varve.planning.backfill import with_downstream
from varve.planning.changes.changes import ColumnChange, column_changes

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.evolution import Consequence
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph


class CodeChangeKind(StrEnum):
    """How a dataset differs from what is deployed.

    CHANGED: its code is another one. DECIDED: the same, or only what it says of earlier code, and that is what follows:
    the next sensor or run deploys it. OUTDATED: its code is deployed, and what is to become of partitions of other code
    is not decided. REDECLARED: the same code says of earlier code what was decided before and replaced, as a process
    does that was not restarted. REBUILDING: it is decided, and they are being computed. EVOLVING: its code is deployed,
    but what it says is another generation than readers see, as where a calendar's windows end elsewhere. ADDED: it was
    never deployed. REMOVED: it has partitions, and no declaration any more. ELSEWHERE: it belongs to another project,
    and what is declared here counts for nothing.
    """

    CHANGED = "changed"
    DECIDED = "decided"
    OUTDATED = "outdated"
    REDECLARED = "redeclared"
    REBUILDING = "rebuilding"
    EVOLVING = "evolving"
    ADDED = "added"
    REMOVED = "removed"
    ELSEWHERE = "elsewhere"


class DeployedCode(NamedTuple):
    """The code of a dataset that is deployed, and its declaration at its last publish.

    Attributes:
        columns: its data columns and partition columns by name, with their types.
        on_hold: whether the decision about partitions of other code is to hold.
        evolving: whether the declaration here is of another generation than readers see.
        decided: whether the code here needs no decision to be deployed in its place.
        stay: how many partitions keep what earlier code has made of them then.
        again: whether the code here says of earlier code what was decided before, and was replaced.
    """

    version: str
    source: str
    columns: Mapping[str, str]
    on_hold: bool
    evolving: bool = False
    decided: bool = False
    stay: int = 0
    again: bool = False


class AffectedReader(NamedTuple):
    """A dataset that reads a dropped or retyped column, as far as the text of its query tells.

    Attributes:
        columns: those columns; empty where it reads all columns, or where that is not certain.
    """

    dataset: str
    owners: tuple[str, ...]
    columns: tuple[str, ...]


class KeptBatches(NamedTuple):
    """Batches that the code here has made from what is current, somewhere and some time: they need not be computed.

    Attributes:
        partitions: what they are of.
        environments: in which of them were computed.
        compared: how many have a hash of their rows, as the current batches have.
        differing: those of them whose rows differ from the current ones.
    """

    partitions: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    compared: int = 0
    differing: tuple[str, ...] = ()


NONE_KEPT = KeptBatches()


@dataclass(frozen=True, slots=True)
class CodeChange:
    """How one dataset differs from what is deployed.

    Attributes:
        version, deployed: the version of the code here, and of the code that is deployed; "" where there is none.
        partitions: the current batches that the code here has not made and that may not stay, by partition, in order.
        stay: how many partitions keep what earlier code has made of them.
        of: how many partitions the dataset has in all.
        downstream: by dataset, how many partitions read those, directly or not: the most that can follow.
        seconds: what computing them will take, by what earlier runs took; None where there was none.
        kept: what of the partitions was computed with the code here before.
        owner: the other project to which it belongs; "" where there is none.
        consequences: what follows for the batches that are there from the declaration of columns, store and partitions.
    """

    dataset: str
    kind: CodeChangeKind
    version: str
    deployed: str
    declared: str
    owners: tuple[str, ...]
    columns: tuple[ColumnChange, ...]
    readers: tuple[AffectedReader, ...]
    partitions: Mapping[str, int]
    of: int
    downstream: Mapping[str, int]
    before: str
    after: str
    rows: int = 0
    size: int = 0
    seconds: float | None = None
    consequences: tuple[Consequence, ...] = ()
    kept: KeptBatches = NONE_KEPT
    owner: str = ""
    stay: int = 0

    @property
    def needs_decision(self) -> bool:
        """Whether a person has to decide what follows (`varve apply`)."""
        return self.kind in {CodeChangeKind.CHANGED, CodeChangeKind.OUTDATED, CodeChangeKind.REDECLARED}

    def source_diff(self) -> list[str]:
        """The difference of the declarations, line by line, as `diff -u` prints it."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), "deployed", "here", lineterm="", n=2
        )
        return list(lines)

    def as_values(self) -> dict[str, Any]:
        """The change as plain values for JSON."""
        return {
            "dataset": self.dataset,
            "kind": str(self.kind),
            **({"owner": self.owner} if self.owner else {}),
            "needs_decision": self.needs_decision,
            "version": self.version,
            "deployed": self.deployed,
            "declared": self.declared,
            "owners": list(self.owners),
            "columns": [{**asdict(column), "kind": str(column.kind)} for column in self.columns],
            "readers": [{**reader._asdict(), "owners": list(reader.owners), "columns": list(reader.columns)}
                        for reader in self.readers],
            "partitions": dict(self.partitions),
            "of": self.of,
            "stay": self.stay,
            "downstream": dict(self.downstream),
            "rows": self.rows,
            "bytes": self.size,
            "seconds": self.seconds,
            "consequences": [asdict(consequence) for consequence in self.consequences],
            "kept": {**self.kept._asdict(), "partitions": list(self.kept.partitions),
                     "environments": list(self.kept.environments), "differing": list(self.kept.differing)},
            "diff": self.source_diff(),
        }  # fmt: skip


def digest_of(changes: Sequence[CodeChange]) -> str:
    """A hash of all that a plan of these changes assumes: codes, decisions, and the batches that they concern."""
    assumed = [
        [change.dataset, change.kind, change.version, change.deployed, sorted(change.partitions.items())]
        for change in changes
        if change.needs_decision
    ]
    return hashlib.blake2b(json.dumps(assumed).encode(), digest_size=12).hexdigest()


def code_changes(  # noqa: PLR0917 - what one look at the catalog has found
    graph: Graph,
    deployed: Mapping[str, DeployedCode],
    made_by_others: Mapping[str, Mapping[str, int]],
    counts: Mapping[str, int],
    members: Members | None,
    now: dt.datetime,
    of_others: Mapping[str, str] = MappingProxyType({}),
) -> list[CodeChange]:
    """The datasets that differ from what is deployed, upstream first; an unchanged project has none.

    Args:
        graph: the datasets as they are declared here.
        deployed: the deployed code by dataset.
        made_by_others: by dataset, the current batches that the code here has not made and that may not stay.
        counts: the number of partitions of each dataset of the catalog.
        members: the members of dynamic sets.
        now: until when windows count as partitions of the readers.
        of_others: the datasets that belong to other projects over the same catalog, with their names.
    """
    changes = []
    for dataset in graph.in_order():
        version, code = graph.code_versions.get(dataset.name, ""), deployed.get(dataset.name)
        batches = made_by_others.get(dataset.name, {})
        if not version or dataset.rejected_of or dataset.of_project:
            continue
        if dataset.name in of_others:
            kind = CodeChangeKind.ELSEWHERE
        elif code is None:
            kind = CodeChangeKind.ADDED
        elif code.decided:
            kind = CodeChangeKind.DECIDED
        elif code.version != version:
            kind = CodeChangeKind.CHANGED
        elif code.again:
            kind = CodeChangeKind.REDECLARED
        elif batches:
            kind = CodeChangeKind.OUTDATED if code.on_hold else CodeChangeKind.REBUILDING
        elif code.evolving:
            kind = CodeChangeKind.EVOLVING
        else:
            continue
        is_other = kind in {CodeChangeKind.CHANGED, CodeChangeKind.DECIDED}
        columns = _column_changes(code.columns if code else {}, dataset) if is_other else ()
        changes.append(
            CodeChange(
                dataset.name, kind, version, code.version if code else "", _declared(dataset), dataset.owners, columns,
                _affected(graph, dataset, columns), dict(sorted(batches.items())), counts.get(dataset.name, 0),
                _downstream(graph, dataset, batches, members, now), code.source if code else "",
                graph.sources.get(dataset.name, ""), owner=of_others.get(dataset.name, ""),
                stay=code.stay if code else 0,
            )
        )  # fmt: skip
    broken = {name for dataset in graph.broken for name in (dataset.name, dataset.rejected)}
    # Any dataset may be the one of a file whose name cannot be read.
    unknown = any(not dataset.name for dataset in graph.broken)
    changes += [
        CodeChange(
            name, CodeChangeKind.REMOVED, "", code.version, "", (), (), (), {}, counts[name], {}, code.source, ""
        )
        for name, code in sorted(deployed.items())
        if name not in graph.datasets and name not in broken and not unknown and counts.get(name)
        if name not in of_others
    ]
    return changes


def _declared(dataset: Dataset) -> str:
    policy = dataset.policy
    return f"{policy.on_code_change} from {policy.forward_from}" if policy.forward_from else str(policy.on_code_change)


def _column_changes(before: Mapping[str, str], dataset: Dataset) -> tuple[ColumnChange, ...]:
    after = {column.name: str(column.type) for column in (*dataset.partition_columns, *dataset.schema.columns)}
    renames = {was: column.name for column in dataset.schema.columns for was in column.was}
    return tuple(column_changes(before, after, _holds, renames)) if before else ()


def _holds(before: str, after: str) -> bool:
    """Whether what was written for one type stays valid for another."""
    return before == after or widens(ColumnType(before), ColumnType(after))


def _affected(graph: Graph, dataset: Dataset, columns: Sequence[ColumnChange]) -> tuple[AffectedReader, ...]:
    """The readers of columns that were dropped, renamed or have another type."""
    altered = [column.column for column in columns if column.breaks]
    if not altered:
        return ()
    readers = []
    for reader in graph.in_order():
        for edge in graph.edges[reader.name]:
            if edge.upstream.name != dataset.name:
                continue
            named = () if edge.columns is None else tuple(name for name in altered if name in edge.columns)
            if edge.columns is None or named:
                readers.append(AffectedReader(reader.name, reader.owners, named))
    return tuple(readers)


def _downstream(
    graph: Graph, dataset: Dataset, batches: Mapping[str, int], members: Members | None, now: dt.datetime
) -> dict[str, int]:
    keys = []
    for path in batches:
        try:
            keys.append(dataset.partitioning.from_path(path))
        except VarveError:
            # A partition that the dataset has no more: nobody reads it.
            continue
    if not keys:
        return {}
    reached = with_downstream(graph, dataset, keys, None, members=members, now=now)
    return {name: len(partitions) for name, partitions in reached.items() if name != dataset.name}
