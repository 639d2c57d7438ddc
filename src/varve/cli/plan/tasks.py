"""`varve tasks`: the partitions that a dataset has, each with the scope that computes it and its state, newest first.

Not here: what one of them reads (varve/cli/plan/show.py), and why it is in its state (why.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import pendulum
from rich.markup import escape

from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.cli.plan.open_plan import opened_plan
from varve.cli.plan.show import members_of
from varve.cli.printing import Table
from varve.cli.selection import by_column, dataset_named, spelt_out
from varve.dagster.assets.sql_folders import sql_datasets, usable
from varve.dagster.discovery import graph_of_folder
from varve.model.errors import ServiceUnavailable, UnknownPartition, VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.windows import kept_from, retired_until
from varve.planning.judgement.judgement import State
from varve.planning.mapping.dimension_mapping import everything
from varve.planning.mapping.partition_subset import TimeSpans, choice_of, values_of
from varve.planning.requested import nothing_there, why_not
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey, Value
    from varve.sql.sql_asset import SqlAsset


def tasks(
    name: str,
    words: Sequence[str],
    *,
    at: dt.datetime | None,
    first: str | None,
    last: str | None,
    limit: int,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the tasks that the dataset has at an instant (None: now) as plain values, the newest windows first.

    The state of each is as of now; it is None for a folder of files, and where no catalog can be asked: nothing is
    started for it. `count` says how many there are; at most `limit` are listed.

    Raises VarveError for an unknown dataset and for a range without a time dimension, UnknownPartition for words and
    ends of the range that name no partition.
    """
    files = usable(folder) if folder else sql_datasets(chosen_project().assets)
    graph = graph_of_folder(folder, files) if folder else chosen_graph()
    dataset = dataset_named(name, graph)
    now = at or pendulum.now("UTC")
    if (asset := files.get(dataset.name)) is not None and asset.moves:
        dataset = _as_of(dataset, now)
    if (first is not None or last is not None) and dataset.partitioning.time is None:
        raise VarveError(f"{dataset}: --from and --to need a time dimension, and it has none. Leave them out.")
    members = members_of(dataset, graph)
    keys_of_dimensions = _keys_of_dimensions(dataset, words, members, now, (first, last))
    keys = list(islice(_newest_first(dataset, keys_of_dimensions), limit))
    states = {} if folder else _states(dataset, keys)
    return {
        "dataset": dataset.name,
        "at": now.isoformat(),
        "count": math.prod(len(values) for values in keys_of_dimensions),
        "empty_sets": [
            dimension.set_name
            for dimension in dataset.partitioning.dimensions
            if isinstance(dimension, DynamicDimension) and not (members or {}).get(dimension.set_name)
        ],
        "tasks": [
            {
                "partition": key.path,
                "scope": _scope(files.get(dataset.name), dataset, key),
                "state": str(states[key][0]) if states else None,
                "reason": states[key][1] if states else None,
            }
            for key in keys
        ],
    }


def _as_of(dataset: Dataset, now: dt.datetime) -> Dataset:
    """The dataset with the windows that a series without START (`LAST 2 DAYS`) had, or will have, at an instant."""
    time, retention = dataset.partitioning.time, dataset.policy.retention
    assert time is not None
    assert retention is not None
    start = time.calendar.floor(retired_until(time, retention, now.timestamp()))
    if start >= time.first:
        return dataset
    moved = replace(time, start=pendulum.from_timestamp(start, tz=time.timezone))
    dimensions = [moved if dimension is time else dimension for dimension in dataset.partitioning.dimensions]
    return replace(dataset, partitioning=Partitioning(tuple(dimensions)))


def _keys_of_dimensions(
    dataset: Dataset,
    words: Sequence[str],
    members: Members | None,
    now: dt.datetime,
    ends: tuple[str | None, str | None],
) -> list[list[Value]]:
    """The keys of each dimension that are partitions at `now`: those that words name, windows within the range."""
    words = spelt_out(dataset, words)
    texts, names = by_column(words), dataset.partitioning.names
    if unknown := [word for word in words if word.partition("=")[0] not in names or "=" not in word]:
        wanted = f"write column=value with {', '.join(names)}" if names else "it has no partitions, leave it out"
        raise UnknownPartition(f"{dataset}: {unknown[0]!r} names no partition; {wanted}.")
    chosen = []
    for dimension in dataset.partitioning.dimensions:
        existing = everything(dimension, members, now)
        if isinstance(dimension, TimeDimension):
            assert isinstance(existing, TimeSpans)
            retention = dataset.policy.retention
            start = dimension.first if retention is None else kept_from(dimension, retention, now.timestamp())
            existing = existing.within(start, None).meet(_range(dimension, *ends))
        values = list(values_of(dimension, existing))
        if isinstance(dimension, TimeDimension) and dimension.columns:
            assert isinstance(existing, TimeSpans)
            windows = dimension.windows_with(texts, existing.starts(dimension))
            values = [dimension.value_at(start) for start in windows]
        elif dimension.name in texts:
            named = dimension.parse(texts[dimension.name])
            values = [value for value in values if value == named]
        chosen.append(values)
    return chosen


def _range(dimension: TimeDimension, first: str | None, last: str | None) -> TimeSpans:
    """The windows from one to another, both included."""
    start = dimension.first if first is None else _start(dimension, first)
    if last is None:
        return TimeSpans.of([(start, 1 << 62)])
    windows = choice_of(dimension, [dimension.value_at(_start(dimension, last))])
    assert isinstance(windows, TimeSpans)
    return TimeSpans.of([(start, windows.spans[-1][1])])


def _start(dimension: Dimension, text: str) -> int:
    assert isinstance(dimension, TimeDimension)
    return dimension.start_of(dimension.parse(text))


def _newest_first(dataset: Dataset, keys_of_dimensions: Sequence[Sequence[Value]]) -> Iterator[PartitionKey]:
    """The partitions with these keys: the newest window first, all other keys in their order within it."""
    partitioning = dataset.partitioning
    places = range(len(partitioning.dimensions))
    lead = next((place for place in places if partitioning.dimensions[place] is partitioning.time), None)
    order = [place for place in places if place != lead]
    if lead is not None:
        order.insert(0, lead)
    axes = [keys_of_dimensions[place][:: -1 if place == lead else 1] for place in order]
    for values in product(*axes):
        by_place = dict(zip(order, values, strict=True))
        yield partitioning.key([by_place[place] for place in places])


def _scope(asset: SqlAsset | None, dataset: Dataset, key: PartitionKey) -> list[list[str]]:
    """The variables of the scope as rows of name, value and type; of a dataset of Python, its window."""
    if asset is not None:
        return [[name, str(typed), typed.type] for name, typed in asset.scopes.of(key).values.items()]
    time = dataset.partitioning.time
    if time is None:
        return []
    window = time.window(time.value_in(key))
    return [["from", str(window.start), "TIMESTAMP"], ["to", str(window.end), "TIMESTAMP"]]


def _states(dataset: Dataset, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, tuple[State, str]]:
    """The state of each partition as of now, and the reason; empty where no catalog can be asked."""
    settings = chosen_settings()
    if settings.embedded_postgres and not PostgresServer(settings.home_dir).is_up():
        return {}
    now = pendulum.now("UTC").timestamp()
    try:
        with opened_plan() as open_plan:
            judgements = open_plan.judgements(dataset)
            members = open_plan.members
    except ServiceUnavailable:
        return {}
    states = {}
    for key in keys:
        judgement = judgements.get(key.path)
        absence = why_not(dataset, key, now=now, members=members) if judgement is None else ""
        states[key] = (
            (judgement.state, judgement.reason)
            if judgement is not None
            else (State.MISSING, absence or nothing_there(dataset))
        )
    return states


def show(console: Console, values: dict[str, Any]) -> None:
    """Print the tasks as a table."""
    listed = values["tasks"]
    if not listed:
        text = f"{values['dataset']} has no such task at {values['at'][:19]}"
        because = "".join(f", as the set {name} has no key yet" for name in values["empty_sets"])
        console.print(f"{text}{because}.", markup=False, highlight=False, soft_wrap=True)
        return
    names = [name for name, _, _ in listed[0]["scope"]]
    has_states = listed[0]["state"] is not None
    columns = ["partition", *names, *(["state"] if has_states else [])]
    table = Table(*columns, title=values["dataset"], title_justify="left")
    for task in listed:
        variables = [escape(value) for _, value, _ in task["scope"]]
        table.add_row(task["partition"], *variables, *([task["state"]] if has_states else []))
    console.print(table)
    if values["count"] > len(listed):
        console.print(f"  and {values['count'] - len(listed):,} more; --limit lists more of them.", highlight=False)
