"""What each page of the console shows, as plain values: those of the commands, from the same functions.

Not here: how it looks (templates/), and who may see it (access.py).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pendulum

from varve.catalog.code.promotions import Promotions
from varve.catalog.environments.environments import Environments
from varve.catalog.history.history import History
from varve.catalog.history.moves import Moves
from varve.catalog.history.search import Search
from varve.cli.batches.batch_trace import trace_values
from varve.cli.batches.history import batch_values
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.environments.work import values_of
from varve.cli.observe.console.comparing import batch_differences
from varve.cli.observe.console.heat_calendar import OTHER, calendar_values
from varve.cli.observe.console.judged import JudgedPlan
from varve.cli.observe.console.lineage import lineage_values
from varve.cli.observe.console.seen_graph import command_of, named, readers_of
from varve.cli.observe.opened import untouched_catalog
from varve.cli.plan.open_plan import OpenPlan
from varve.cli.plan.why import why_of
from varve.cli.selection import dataset_named
from varve.model.batch import BatchId
from varve.model.errors import BadInput, VarveError
from varve.planning.judgement.judgement import State
from varve.planning.operations.heat import WORST_FIRST
from varve.planning.reconcile import judged_anew

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import psycopg

    from varve.project import Project

_LISTED = 200
_MOVED = 300
# A page of a dataset with so few partitions lists them all, whatever their states.
_FEW = 60
_GROUPS_SHOWN = 400
_LARGEST = 2**63 - 1
_QUIET = {State.CURRENT, State.ACCEPTED, State.UPCOMING, State.MISSING}


@dataclass
class Pages:
    """The pages of one project, each a mapping for its template. Their errors are those of the commands."""

    project: Project

    @cached_property
    def judged(self) -> JudgedPlan:
        """The plan that they show."""
        return JudgedPlan(self.project)

    def overview(self) -> dict[str, Any]:
        """All datasets over time, and what a person should look at."""
        with _opened():
            seen = self.judged.seen()
        return {
            "at": seen.at, "due": seen.due, **seen.problems,
            "datasets": [dataset.heat for dataset in seen.datasets.values()],
        }  # fmt: skip

    def dataset(self, name: str, group: str = "", first_row: str = "") -> dict[str, Any]:
        """A dataset: its partitions as a calendar, a month or a year of them at a time where it has windows."""
        dataset = dataset_named(name)
        row = _number_of(first_row or "0", "the first row")
        with _opened():
            seen = self.judged.seen()
        judged = seen.datasets[dataset.name]
        judgements, pages = judged.judgements, judged.pages
        names = sorted(pages, key=lambda name: (name != OTHER, name))
        chosen = group if group in pages else next(reversed(names), "")
        paths = pages.get(chosen, [])
        calendar = calendar_values(judged.places, judgements, paths, first_row=row)
        telling = [path for path in paths if judgements[path].state not in _QUIET]
        listed = paths if len(paths) <= _FEW or calendar is None else telling
        only_telling = listed is telling
        if len(listed) > _LISTED:
            # What a person should see first is not cut off.
            listed = sorted(listed, key=lambda path: WORST_FIRST.index(judgements[path].state))
        graph = chosen_graph()
        return {
            "at": seen.at, "dataset": dataset.name, "comment": dataset.comment, "owners": list(dataset.owners),
            "store": str(dataset.store), "kinds": [dimension.name for dimension in dataset.partitioning.dimensions],
            "upstreams": [upstream.name for upstream in graph.upstreams(dataset)],
            "downstreams": sorted(
                name for name, edges in graph.edges.items() if any(edge.upstream.name == dataset.name for edge in edges)
            ),
            "groups": [
                {"name": name, "partitions": len(pages[name]), "chosen": name == chosen}
                for name in names[-_GROUPS_SHOWN:]
            ],
            "chosen": chosen, "calendar": calendar, "all": len(paths),
            "partitions": [
                {"path": path, "state": str(judgements[path].state), "reason": judgements[path].reason}
                for path in listed[:_LISTED]
            ],
            "more": max(0, len(listed) - _LISTED), "only_telling": only_telling,
            "rejected": [row for row in seen.problems["rejected"] if row["dataset"] == dataset.name],
        }  # fmt: skip

    def partition(self, name: str, path: str) -> dict[str, Any]:
        """A partition: its state and why, its batches, what the current one was made from and what reads it."""
        dataset, key = named(name, path)
        with _opened() as connection:
            seen = self.judged.seen()
            plan = OpenPlan(connection, replace(seen.facts, connection=connection), seen.members)
            judgement = judged_anew(
                seen.graph, plan.facts, dataset, key.path, seen.judgements, now=pendulum.now("UTC"),
                members=seen.members, codes=seen.facts.codes,
            )  # fmt: skip
            own = {} if judgement is None else {key.path: judgement}
            reasons = why_of(dataset, key, plan, {**seen.judgements, dataset.name: own})
            past = History(connection).batches(dataset.name, [key.path], limit=_LISTED + 1)
            trace = None
            if reasons["batch"]:
                readers = list(readers_of(seen, dataset.name, key.path))
                whole = trace_values(connection, dataset, BatchId(reasons["batch"]), [key.path], readers)
                trace = whole["partitions"][0] | {"read_by": whole["read_by"]}
                # What has changed first: of many inputs not all are listed.
                trace["inputs"].sort(key=lambda read: read["now"] in {None, read["version"]})
        batches = [batch_values(batch) for batch in past[:_LISTED]]

        def command(*words: str, last: Sequence[str] = ()) -> str:
            return command_of(dataset, key.path, *words, last=last)

        # What it was made from says it already, where a run would read the same batches.
        reads = [] if trace is not None and _is_the_same(reasons["reads"], trace["inputs"]) else reasons["reads"]
        # Those of an environment were never current, and nobody goes back to one.
        been_current = [batch for batch in batches if batch["state"] == "retired" and batch["published_at"]]
        earlier = been_current[0]["batch_id"] if been_current else None
        return {
            **reasons, "at": seen.at, "state": str(reasons["state"]), "batches": batches,
            "more_batches": len(past) > _LISTED, "trace": trace,
            "reads": reads[:_LISTED], "more_reads": max(0, len(reads) - _LISTED),
            "commands": [
                command("why"), command("history"), command("backfill", "start"), command("logs"),
                *([command("show", last=["--batch", str(reasons["batch"])])] if reasons["batch"] else []),
                *([command("rollback", last=["--to", str(earlier), "--reason", "..."])] if earlier else []),
            ],
        }  # fmt: skip

    def difference(self, name: str, path: str, first: str, last: str) -> dict[str, Any]:
        """Two batches of a partition beside each other; by default the current one and one before it.

        Where the oldest one is current, as after a rollback, it stands beside the next one after it.
        """
        dataset, key = named(name, path)
        with _opened() as connection:
            past = History(connection).batches(dataset.name, [key.path], limit=_LISTED)
            numbers = [batch.batch_id.millis for batch in past]
            if len(numbers) < 2 and not (first and last):
                raise VarveError(f"{dataset} {key.path} has {len(numbers)} batches: there are no two to compare.")
            current = next((batch.batch_id.millis for batch in past if batch.is_current), numbers[0] if numbers else 0)
            after = _number_of(last, "a batch") if last else current
            before = _number_of(first, "a batch") if first else _nearest(numbers, after)
            differences = batch_differences(connection, dataset, key.path, before, after)
        command = command_of(dataset, key.path, "diff", last=["--from", str(before), "--to", str(after)])
        return {
            "dataset": dataset.name,
            "partition": key.path,
            "batches": numbers,
            **differences,
            "commands": [command],
        }

    def lineage(self, name: str, path: str) -> dict[str, Any]:
        """What a partition was made from and what was made from it, two steps each way."""
        dataset, key = named(name, path)
        with _opened() as connection:
            seen = self.judged.seen()
            values = lineage_values(connection, seen, (dataset.name, key.path))
        return {"dataset": dataset.name, "partition": key.path, "at": seen.at, **values}

    def publishes(self, before: str = "") -> dict[str, Any]:
        """The last publishes, rollbacks and promotions, the newest first; those before one of them."""
        with _opened() as connection:
            moves = Moves(connection)
            listed = moves.latest(_number_of(before, "a publish") if before else None)
            more = moves.has_before(listed)
        return {"publishes": listed, "first": not before, "more": more}

    def run(self, run_id: str) -> dict[str, Any]:
        """Everything that a run, or a command, has published. Raises VarveError where it has published nothing."""
        with _opened() as connection:
            moves = Moves(connection)
            datasets = moves.datasets_of(run_id)
            if not datasets:
                raise VarveError(f"run {run_id} has published nothing that the catalog knows of.")
            rows = moves.partitions_of(run_id, _MOVED)
            promotion = Promotions(connection).of_run(run_id)
        back = ["varve", "revert", str(promotion.number)] if promotion else ["varve", "rollback", "--run", run_id]
        return {
            "run": run_id, "run_url": chosen_settings().run_url(run_id), "datasets": datasets,
            "count": sum(row["partitions"] for row in datasets), "changes": rows,
            "promotion": None if promotion is None else {
                "number": promotion.number, "environment": promotion.environment, "by": promotion.applied_by,
                "at": f"{promotion.applied_at:%Y-%m-%d %H:%M:%S} UTC", "codes": dict(promotion.codes),
            },
            "commands": [shlex.join([*back, *([] if promotion else ["--reason", "..."])])],
        }  # fmt: skip

    def environments(self) -> dict[str, Any]:
        """The environments, with what each has of its own."""
        with _opened() as connection:
            return {"environments": [values_of(environment) for environment in Environments(connection).all()]}

    def search(self, text: str) -> dict[str, Any]:
        """Datasets, partitions, batches and runs in which all words of a text are found."""
        words = text.split()
        names = [name for name in chosen_graph().datasets if all(word.lower() in name.lower() for word in words)]
        with _opened() as connection:
            search = Search(connection)
            batches = search.batches(text.strip())
            return {
                "text": text,
                "datasets": names if words else [],
                "partitions": search.partitions(words) if words and not batches else [],
                "batches": batches,
                "runs": search.runs(text.strip()) if words else [],
            }


def _opened() -> AbstractContextManager[psycopg.Connection]:
    """The catalog as it is. Raises ServiceUnavailable where it is down, UnfitCatalog where it is of another version."""
    return untouched_catalog(chosen_settings(), "varve console")


def _is_the_same(reads: Sequence[Mapping[str, Any]], inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run would read the very batches from which the current one was made."""
    now = {(read["dataset"], read["partition"], str(read["batch"])) for read in reads}
    return now == {(read["source"], read["partition"], str(read["version"])) for read in inputs}


def _nearest(numbers: Sequence[int], number: int) -> int:
    """The nearest of these numbers before that one, else the nearest after it; itself where there is no other."""
    earlier, later = [n for n in numbers if n < number], [n for n in numbers if n > number]
    return max(earlier) if earlier else min(later, default=number)


def _number_of(text: str, what: str) -> int:
    """A whole number of an address. Raises BadInput for another text, and for what is above the largest one."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_LARGEST)) or int(text) > _LARGEST:
        raise BadInput(f"{what} is a whole number from 0 to {_LARGEST}, not {text[:40]!r}.")
    return int(text)
