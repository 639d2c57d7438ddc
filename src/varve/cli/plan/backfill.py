"""`varve backfill`: plan what is computed again, in how many runs and at what cost; mark it, and show the progress."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pendulum
from rich.markup import escape

from varve.catalog.backfills import Backfills
from varve.catalog.catalog import Catalog
from varve.catalog.planning.acceptances import AcceptedInput
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.plan.open_plan import opened_plan
from varve.cli.printing import Table
from varve.cli.selection import by_column, dataset_named, refuse_of_others, spelt_out, who
from varve.model.errors import UnknownPartition, VarveError, counted, some
from varve.planning import run_requests
from varve.planning.backfill import selected, with_downstream
from varve.planning.judgement.judgement import State
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from varve.cli.plan.open_plan import OpenPlan
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.judgement.judgement import Judgement

_HELD_UP = {State.WAITING, State.ON_HOLD, State.FAILED}
# So many different reasons of one backfill are printed.
_MOST_REASONS = 5


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """What a backfill does in one dataset.

    `seconds` is the estimated run time; None where no earlier run of the dataset gives an estimate.
    """

    dataset: str
    paths: Sequence[str]
    runs: int
    seconds: float | None


def plan(
    name: str, words: Sequence[str], *, first: str | None, last: str | None, downstream: str, accept: str = "none"
) -> tuple[list[BackfillPart], list[AcceptedInput]]:
    """Return what would be marked, upstream datasets first, and what is accepted as it is; nothing is marked yet.

    Raises VarveError with what is wrong in the request.
    """
    dataset = dataset_named(name)
    if dataset.rejected_of:
        raise VarveError(
            f"{dataset} holds the rejected rows of {dataset.rejected_of}, whose runs write both. Nothing was marked. "
            f"Run varve backfill start {dataset.rejected_of}."
        )
    values_by_column = _by_column(dataset, words)
    with opened_plan() as open_plan:
        refuse_of_others(open_plan.connection, [dataset.name], "Nothing was marked.")
        now = pendulum.now("UTC")
        keys = selected(dataset, first=first, last=last, words=values_by_column, members=open_plan.members, now=now)
        followed_names = _downstream(downstream)
        marked_keys = with_downstream(chosen_graph(), dataset, keys, followed_names, members=open_plan.members, now=now)
        accepted = _accepted(open_plan, dataset, keys, marked_keys, accept, now)
        costs = Backfills(open_plan.connection).costs(list(marked_keys))
    limit = chosen_settings().partitions_per_run
    parts = []
    for dataset_name, partition_keys in marked_keys.items():
        if chosen_graph().datasets[dataset_name].rejected_of:
            # The runs of its landing dataset write the rejected rows too.
            continue
        due_partitions = [run_requests.Due(key, frozenset(), "") for key in partition_keys]
        policy = chosen_graph().datasets[dataset_name].policy
        count = len(
            run_requests.runs(
                chosen_graph().datasets[dataset_name], due_partitions, limit=policy.partitions_per_run or limit
            )
        )
        cost = costs.get(dataset_name)
        seconds = None if cost is None else cost.estimate(len(partition_keys), count).seconds
        parts.append(BackfillPart(dataset_name, [key.path for key in partition_keys], count, seconds))
    return parts, accepted


def _accepted(  # noqa: PLR0917
    open_plan: OpenPlan,
    dataset: Dataset,
    keys: Sequence[PartitionKey],
    marked: Mapping[str, Sequence[PartitionKey]],
    accept: str,
    now: pendulum.DateTime,
) -> list[AcceptedInput]:
    """The inputs that the backfill makes anew, with those readers of them that are to stay as they are.

    Raises VarveError for a name that cannot be left out, and where what is left out reads what follows by itself.
    """
    if accept == "none":
        return []
    if accept == "all":
        raise VarveError(
            "--accept takes none, rest (all that is downstream and not computed again) or names of datasets, not all. "
            "Nothing was marked."
        )
    graph = chosen_graph()
    reached = with_downstream(graph, dataset, keys, None, members=open_plan.members, now=now)
    left = [name for name in reached if name not in marked and not graph.datasets[name].rejected_of]
    names = left if accept == "rest" else _downstream(accept, "--accept") or []
    if wrong := [name for name in names if name not in left]:
        raise VarveError(
            f"{', '.join(wrong)}: computed again by this backfill, or not downstream of what is selected of {dataset}. "
            f"Nothing was marked. What can be accepted is {', '.join(left) or 'nothing'}."
        )
    accepted: list[AcceptedInput] = []
    for name in names:
        existing = open_plan.facts.existing_partitions(name)
        for edge in graph.edges[name]:
            source = edge.upstream.name
            if source in left and source not in names:
                raise VarveError(
                    f"{name} reads {source}, which would follow by itself. Nothing was marked. Compute it in this "
                    f"backfill (--downstream {source}), or accept it too (--accept {source},{name})."
                )
            made = {key.path for key in marked.get(source, ())}
            for key in reached[name] if made else ():
                wanted = edge.dependency.upstream_of(key, members=open_plan.members, now=now).keys
                accepted += [
                    AcceptedInput(name, key.path, source, upstream_key.path)
                    for upstream_key in wanted
                    if upstream_key.path in made and key.path in existing
                ]
    return accepted


def start(parts: Sequence[BackfillPart], accepted: Sequence[AcceptedInput], *, reason: str) -> int:
    """Mark the partitions of the plan, and return the number of the new backfill."""
    paths = {part.dataset: part.paths for part in parts}
    with _backfills() as backfills:
        return backfills.add(paths, reason=reason or "a backfill", owner=who(), accepted=accepted)


def listed() -> list[dict[str, Any]]:
    """Return all backfills as plain values, the newest first; of those that run, what holds up partitions."""
    with _backfills() as backfills:
        rows: list[dict[str, Any]] = [
            {
                "number": backfill.number,
                "state": backfill.state,
                "reason": backfill.reason,
                "owner": backfill.owner,
                "created_at": backfill.created_at.isoformat(timespec="seconds"),
                "marked": dict(backfill.marked),
                "left": dict(backfill.left),
                "held_up": [],
            }
            for backfill in backfills.listed()
        ]
    if running := [row for row in rows if row["state"] == "running" and any(row["left"].values())]:
        with opened_plan() as open_plan:
            judgements = open_plan.plan().judgements
            for row in running:
                row["held_up"] = _held_up(open_plan, row["number"], row["left"], judgements)
    return rows


def _held_up(
    open_plan: OpenPlan, number: int, left: Mapping[str, int], judgements: Mapping[str, Mapping[str, Judgement]]
) -> list[dict[str, Any]]:
    """The partitions of a backfill that no sensor launches now, together where they wait for the same reason."""
    paths_by_reason: dict[tuple[str, str, str], list[str]] = {}
    for name in left:
        for path, fact in sorted(open_plan.facts.of(name, None).items()):
            judgement = judgements.get(name, {}).get(path)
            is_marked = any(mark.backfill == number for mark in fact.marks)
            if is_marked and judgement is not None and judgement.state in _HELD_UP and not judgement.pending:
                reason = (name, judgement.state.value, judgement.reason)
                paths_by_reason.setdefault(reason, []).append(path)
    return [
        {"dataset": name, "state": state, "reason": reason, "partitions": paths}
        for (name, state, reason), paths in paths_by_reason.items()
    ]


def change(console: Console, number: int, how: str) -> None:
    """Pause, resume or cancel a backfill, and print how far it is."""
    with _backfills() as backfills:
        changes = {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel}
        backfill = changes[how](number)
    marked_count = sum(backfill.marked.values())
    done_count = marked_count - sum(backfill.left.values())
    console.print(
        f"Backfill {number} is {backfill.state}; {done_count:,} of {counted(marked_count, 'partition')} done."
    )


def as_values(parts: Sequence[BackfillPart], accepted: Sequence[AcceptedInput], number: int | None) -> dict[str, Any]:
    """Return the plan as plain values for `--json`."""
    return {
        "backfill": number,
        "datasets": [
            {"dataset": part.dataset, "partitions": list(part.paths), "runs": part.runs, "seconds": part.seconds}
            for part in parts
        ],
        "accepted": {name: sorted(paths) for name, paths in _by_dataset(accepted).items()},
    }


def _by_dataset(accepted: Sequence[AcceptedInput]) -> dict[str, set[str]]:
    paths: dict[str, set[str]] = {}
    for accepted_input in accepted:
        paths.setdefault(accepted_input.dataset, set()).add(accepted_input.path)
    return paths


def show_plan(
    console: Console, parts: Sequence[BackfillPart], accepted: Sequence[AcceptedInput], number: int | None
) -> None:
    """Print the plan as a table."""
    table = Table("dataset", "partitions", "from", "to", "runs", "about", title="To be computed again, in this order",
                  title_justify="left")  # fmt: skip
    for part in parts:
        cost = "unknown" if part.seconds is None else _duration_text(part.seconds)
        table.add_row(part.dataset, f"{len(part.paths):,}", part.paths[0], part.paths[-1], f"{part.runs:,}", cost)
    console.print(table)
    for name, paths in _by_dataset(accepted).items():
        console.print(f"{name}: {counted(len(paths), 'partition')} accepted, and not computed again.", highlight=False)
    if number is None:
        console.print("Nothing was marked: this was a dry run.")
    else:
        console.print(
            f"Backfill {number} is running: the sensors launch it, after fresh data. Until each partition is replaced, "
            "its old batch is served. `varve backfill list` shows how far it is."
        )


def show_listed(console: Console, backfills: Sequence[Mapping[str, Any]]) -> None:
    """Print the backfills as a table."""
    table = Table("number", "state", "done", "reason", "by", "since", title_justify="left")
    for row in backfills:
        total, left = sum(row["marked"].values()), sum(row["left"].values())
        table.add_row(
            str(row["number"]), row["state"], f"{total - left:,} of {total:,}", escape(row["reason"]), row["owner"],
            row["created_at"],
        )  # fmt: skip
    console.print(table if backfills else "There are no backfills.")
    for row in backfills:
        for held_up in row["held_up"][:_MOST_REASONS]:
            paths = some(held_up["partitions"], limit=2)
            console.print(
                f"Backfill {row['number']}: {held_up['dataset']} {paths}: {held_up['state']}: {held_up['reason']}.",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        if more := len(row["held_up"][_MOST_REASONS:]):
            console.print(f"Backfill {row['number']}: {more:,} more such reasons; --json has all.", highlight=False)


def _by_column(dataset: Dataset, words: Sequence[str]) -> dict[str, str]:
    words = spelt_out(dataset, words)
    if without := [word for word in words if "=" not in word]:
        raise UnknownPartition(f"{without[0]!r} names no column of {dataset}; write column=value.")
    return by_column(words)


def _downstream(text: str, option: str = "--downstream") -> list[str] | None:
    if text.startswith("-"):
        raise VarveError(
            f"{option} needs a value, and {text} stands in its place. Write {option} all, none, or names of datasets "
            "between commas. Nothing was marked."
        )
    if text in {"none", "all"}:
        return [] if text == "none" else None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(chosen_graph().datasets)):
        raise VarveError(f"no dataset {', '.join(unknown)}; there are {', '.join(sorted(chosen_graph().datasets))}.")
    return names


@contextmanager
def _backfills() -> Iterator[Backfills]:
    with connect(chosen_settings(), application="varve backfill") as connection:
        Catalog(connection).ensure_schema()
        yield Backfills(connection)


def _duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
