"""`varve accept`: keep partitions as they are although their inputs have changed, until these change again.

Not here: the acceptances of a backfill (backfill.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.planning.acceptances import Acceptances, AcceptedInput
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.plan.open_plan import opened_plan
from varve.cli.selection import by_column, dataset_named, matching, refuse_of_others, spelt_out, who
from varve.model.errors import VarveError, counted, some
from varve.planning.judgement.code import MadeBy
from varve.planning.judgement.facts import NOTHING
from varve.planning.judgement.judgement import State
from varve.planning.readers import Keys
from varve.planning.run_requests import landing_source
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from varve.cli.plan.open_plan import OpenPlan
    from varve.model.dataset import Dataset
    from varve.planning.judgement.facts import Fact

# States in which a partition has nothing to accept, however its inputs differ from those of its batch.
_NOTHING_STALE = {State.CURRENT, State.ACCEPTED}


def accept(name: str, words: Sequence[str], *, reason: str) -> dict[str, Any]:
    """Accept the stale partitions that the words name, and return them with the inputs that changed, as plain values.

    Raises VarveError for a partition without a batch, for one that is marked or being built, and where none is stale.
    """
    dataset = dataset_named(name)
    with opened_plan() as open_plan:
        refuse_of_others(open_plan.connection, [dataset.name])
        judgements = open_plan.judgements(dataset)
        facts = open_plan.facts.of(dataset.name, None)
        asked = _named(dataset, words, {*judgements, *facts})
        if missing := [path for path in asked if not facts.get(path, NOTHING).batch]:
            if words:
                raise VarveError(
                    f"{dataset}: {some(missing, limit=3)} has no batch, and there is nothing to accept. Nothing was "
                    f"changed. Compute it: varve backfill start {dataset} ..., or Materialize in Dagster."
                )
            asked = [path for path in asked if path not in missing]
        accepted: list[AcceptedInput] = []
        # Partitions that have left the graph are there until they are retired, and read nothing any more.
        inside = Keys(dataset.partitioning, open_plan.members).inside(set(asked))
        for path in asked:
            judgement, fact = judgements.get(path), facts[path]
            if path not in inside or judgement is None or judgement.state in _NOTHING_STALE:
                continue
            if fact.run or fact.marks:
                what = (
                    f"run {fact.run[:8]} builds it" if fact.run else f"backfill {fact.marks[-1].backfill} has marked it"
                )
                how = (
                    "Wait for it" if fact.run else f"Cancel that first: varve backfill cancel {fact.marks[-1].backfill}"
                )
                raise VarveError(f"{dataset} {path}: {what}. Nothing was changed. {how}.")
            accepted += _changes(open_plan, dataset, path, fact)
        if not accepted:
            raise VarveError(
                f"{dataset}: none of {counted(len(asked), 'partition')} is stale by a changed input. Nothing was "
                "changed. `varve why` says what a partition is made from."
            )
        Acceptances(open_plan.connection).add(accepted, reason=reason, owner=who())
        paths = {each.path for each in accepted}
        of_other_code = sorted(path for path in paths if facts[path].made_by == MadeBy.OTHER)
    return _values(dataset, accepted, reason) | {"of_other_code": of_other_code}


def take_back(name: str, words: Sequence[str]) -> dict[str, Any]:
    """End the acceptances that the words name, and return their partitions. Raises VarveError where there are none."""
    dataset = dataset_named(name)
    with connect(chosen_settings(), application="varve accept") as connection:
        Catalog(connection).ensure_schema()
        refuse_of_others(connection, [dataset.name])
        acceptances = Acceptances(connection)
        paths = acceptances.paths(dataset.name)
        if not paths:
            raise VarveError(f"{dataset}: no partition was accepted. Nothing was changed.")
        chosen = matching(dataset, words, paths)
        acceptances.take_back(dataset.name, chosen)
    return {"dataset": dataset.name, "taken_back": chosen}


def show(console: Console, values: Mapping[str, Any]) -> None:
    """Print what was accepted, or taken back."""
    for partition in values.get("accepted", ()):
        changed = some([f"{read['dataset']} {read['partition']}" for read in partition["changed"]], limit=3)
        console.print(f"{partition['partition']}: accepted, although {changed} changed", markup=False, highlight=False)
    if others := values.get("of_other_code", ()):
        console.print(
            f"{some(others, limit=3)}: still out of date, as made by other code than is deployed: `varve plan` and "
            "`varve apply` decide about that.",
            markup=False, highlight=False,
        )  # fmt: skip
    for path in values.get("taken_back", ()):
        console.print(f"{path}: stale again where an input has changed", markup=False, highlight=False)


def _named(dataset: Dataset, words: Sequence[str], paths: set[str]) -> list[str]:
    """The paths that the words name; a whole key that the catalog does not have is one too, and is missing."""
    words = spelt_out(dataset, words)
    if len(words) == len(dataset.partitioning.names):
        texts = by_column(words)
        if texts.keys() == set(dataset.partitioning.names):
            return [dataset.partitioning.parsed(texts).path]
    return matching(dataset, words, paths)


def _changes(open_plan: OpenPlan, dataset: Dataset, path: str, fact: Fact) -> list[AcceptedInput]:
    """The inputs of a partition that differ now from those of its batch."""
    versions: dict[tuple[str, str], str] = {}
    if dataset.arrives and fact.arrival:
        versions[landing_source(dataset), path] = fact.arrival
    key = dataset.partitioning.from_path(path)
    for edge in chosen_graph().edges[dataset.name]:
        wanted = [
            upstream_key.path for upstream_key in edge.dependency.upstream_of(key, members=open_plan.members).keys
        ]
        for upstream_path, upstream_fact in open_plan.facts.of(edge.upstream.name, wanted).items():
            if upstream_fact.batch:
                versions[edge.upstream.name, upstream_path] = str(upstream_fact.batch)
    trace = {(source, partition): version for source, partition, version in fact.trace}
    return [
        AcceptedInput(dataset.name, path, *name, versions.get(name, ""))
        for name in sorted({*versions, *trace})
        if versions.get(name, "") != trace.get(name, "")
    ]


def _values(dataset: Dataset, accepted: Sequence[AcceptedInput], reason: str) -> dict[str, Any]:
    changed: dict[str, list[dict[str, str | None]]] = {}
    for _, path, source, source_path, version in accepted:
        changed.setdefault(path, []).append({"dataset": source, "partition": source_path, "version": version})
    partitions = [{"partition": path, "changed": inputs} for path, inputs in changed.items()]
    return {"dataset": dataset.name, "reason": reason, "accepted": partitions}
