"""`varve history | folders`: all batches of a dataset, and which were current when.

Not here: which must stay (pins.py).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations, dataset_of
from varve.catalog.history.drops import declared_name
from varve.catalog.history.history import History
from varve.catalog.traces import Traces
from varve.cli.context import chosen_graph, chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import dataset_named, matching, named_path, size_text
from varve.model.errors import VarveError
from varve.services.postgres import connect
from varve.stores.open import store_type

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from varve.catalog.history.rows import CurrentChange, PastBatch
    from varve.model.batch import BatchId
    from varve.model.dataset import Dataset


def opened() -> AbstractContextManager[History]:
    """Open the history over a connection of its own, after the catalog's tables were brought up to date."""
    from contextlib import contextmanager

    @contextmanager
    def open_history() -> Iterator[History]:
        with connect(chosen_settings(), application="varve history") as connection:
            Catalog(connection).ensure_schema()
            yield History(connection)

    return open_history()


def known(past: History, name: str) -> Dataset:
    """Return the dataset as it is declared, or as the catalog knows it where nobody declares it any more.

    Raises as `declared` does where neither is so.
    """
    graph, name = chosen_graph(), name.replace("/", ".")
    if name in graph.datasets or graph.broken_dataset(name) is not None:
        return dataset_named(name)
    published = Generations(past.connection).published([name]).get(name)
    return dataset_named(name) if published is None else dataset_of(name, published.store, published.declaration)


def built(history: History, dataset: str | None) -> dict[str, str]:
    """Return the store kind of each dataset that was ever built: of this one, or of all where `dataset` is None.

    Dropped datasets whose data is not deleted yet are among them, by the names that the catalog has for them.

    Raises VarveError where this dataset was never built.
    """
    kinds = history.stores()
    names = sorted({declared_name(name) for name in kinds})
    if dataset is not None and dataset not in names:
        raise VarveError(f"nothing of {dataset!r} was ever built; there are {', '.join(names) or 'none'}.")
    return {name: kind for name, kind in kinds.items() if dataset in {None, declared_name(name)}}


def history(dataset_name: str, words: Sequence[str], *, run: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the batches as plain values, the newest first in each partition; of a run by its id or how that begins.

    Raises VarveError where no run of theirs begins so.
    """
    with opened() as past:
        dataset = known(past, dataset_name)
        paths = matching_partitions(past, dataset, words) if words else None
        runs = None if run is None else _named_runs(past, run, dataset, words, paths)
        batches = past.batches(dataset.name, paths, run_ids=runs, limit=limit)
    return [batch_values(batch) for batch in batches]


def changes(dataset_name: str, words: Sequence[str], *, run: str | None, limit: int) -> list[dict[str, Any]]:
    """Return which batch became current when, as plain values, the latest change first; of a run as `history` does.

    Raises VarveError where no run that has changed anything there begins so.
    """
    with opened() as past:
        dataset = known(past, dataset_name)
        paths = matching_partitions(past, dataset, words) if words else None
        runs = None if run is None else _named_runs(past, run, dataset, words, paths, log=True)
        changed = past.changes(dataset.name, paths, run_ids=runs, limit=limit)
    return [_change(change) for change in changed]


def _named_runs(
    past: History, run: str, dataset: Dataset, words: Sequence[str], paths: Sequence[str] | None, *, log: bool = False
) -> set[str]:
    """Return the run with this id, or those whose ids begin with it. Raises VarveError where there is none."""
    if named := past.runs_of(dataset.name, paths, run, changes=log):
        return named
    where = f"{dataset} {shlex.join(words)}".strip()
    what, option = ("run that has changed what is current", " --log") if log else ("run", "")
    raise VarveError(f"no {what} of {where} begins with {run!r}. `varve history {where}{option}` lists them.")


def folders(dataset_name: str, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return where the current batches lie, as plain values. Raises VarveError for a dataset whose store has none."""
    dataset = dataset_named(dataset_name)
    if not store_type(dataset.store).in_folders:
        raise VarveError(f"{dataset} lies in the {dataset.store}, not in folders: read {dataset.name} there.")
    with opened() as past:
        current = Catalog(past.connection).current(dataset.name)
    return [
        {"partition": path, "batch_id": current[path].batch_id.millis, "location": current[path].location}
        for path in matching(dataset, words, current)
    ]


def show_folders(locations: Sequence[dict[str, Any]]) -> None:
    """Print one folder a line and nothing else, for a program to read."""
    for location in locations:
        typer.echo(location["location"])


def show_history(console: Console, dataset_name: str, lines: Sequence[dict[str, Any]], *, limit: int) -> None:
    """Print the first `limit` of the batches as a table, and whether there are more."""
    columns = ("partition", "batch", "began (UTC)", "state", "rows", "size", "run", "remarks")
    table = Table(*columns, title=dataset_name, title_justify="left")
    # It is what `--run` takes, so that it stays in one line.
    table.columns[columns.index("run")].no_wrap = True
    for row in lines[:limit]:
        remarks = [f"pinned by {pin['owner']}: {pin['reason']}" for pin in row["pins"]]
        remarks += [f"made in environment {row['environment']}, never current"] if row["environment"] else []
        remarks += [str(row["failure"]).splitlines()[0]] if row["failure"] else []
        state = f"[bold green]{row['state']}[/]" if row["is_current"] else row["state"]
        size = "" if row["bytes"] is None else size_text(row["bytes"])
        rows = "" if row["rows"] is None else f"{row['rows']:,}"
        table.add_row(
            row["partition"], str(row["batch_id"]), str(row["started_at"])[:19], state, rows, size,
            row["run_id"][:8], escape("; ".join(remarks)),
        )  # fmt: skip
    console.print(table if lines else f"{dataset_name} has no batches there.")
    _show_cut(console, len(lines), limit)


def show_changes(console: Console, dataset_name: str, lines: Sequence[dict[str, Any]], *, limit: int) -> None:
    """Print the first `limit` of the changes as a table, and whether there are more."""
    table = Table("when (UTC)", "partition", "batch", "by", "run", "reason", title=dataset_name, title_justify="left")
    for row in lines[:limit]:
        batch = "none any more" if row["batch_id"] is None else str(row["batch_id"])
        table.add_row(
            row["published_at"][:19],
            row["partition"],
            batch,
            row["kind"],
            row["run_id"],
            escape(row["reason"]),
        )
    console.print(table if lines else f"Nothing of {dataset_name} was ever current there.")
    _show_cut(console, len(lines), limit)


def _show_cut(console: Console, count: int, limit: int) -> None:
    if count > limit:
        console.print(f"There are more than these {limit:,}: raise --limit, or name a partition.", highlight=False)


def session() -> Any:
    """Open a session of the chosen project's Spark."""
    from varve.services.spark import open_session

    return open_session(chosen_settings())


def matching_partitions(past: History, dataset: Dataset, words: Sequence[str]) -> list[str]:
    """Return the partitions that ever had a batch and that the words name, sorted; where these name one, only that.

    Raises UnknownPartition as `matching` does.
    """
    path = named_path(dataset, words)
    known = past.partitions(dataset.name, [path]) if path is not None else set()
    return matching(dataset, words, known or past.partitions(dataset.name))


def current_ids(past: History, dataset_name: str, paths: Sequence[str] | None) -> dict[str, BatchId]:
    """Return the current batch of each of these partitions (None: of all) that has one."""
    if paths is None:
        return {path: batch.batch_id for path, batch in Catalog(past.connection).current(dataset_name).items()}
    current = Traces(past.connection).current([(dataset_name, path) for path in paths])
    return {path: batch_id for (_, path), batch_id in current.items()}


def batch_values(batch: PastBatch) -> dict[str, Any]:
    """Return a batch as plain values; sizes in bytes, times in UTC."""
    return {
        "partition": batch.partition,
        "batch_id": batch.batch_id.millis,
        "state": batch.state.value,
        "is_current": batch.is_current,
        "run_id": batch.run_id,
        "rows": batch.rows,
        "bytes": batch.size,
        "files": batch.files,
        "content": batch.content,
        "statistics": {bounds.column: [bounds.low, bounds.high] for bounds in batch.bounds},
        "location": batch.location,
        "started_at": batch.started_at.isoformat(sep=" "),
        "published_at": _text(batch.published_at),
        "retired_at": _text(batch.retired_at),
        "swept_at": _text(batch.swept_at),
        "failure": batch.failure,
        "environment": batch.environment,
        "pins": [
            {"owner": pinned.owner, "reason": pinned.reason, "expires_at": _text(pinned.expires_at)}
            for pinned in batch.pins
        ],
    }


def _change(change: CurrentChange) -> dict[str, Any]:
    return {
        "partition": change.partition,
        "batch_id": None if change.batch_id is None else change.batch_id.millis,
        "kind": change.kind,
        "run_id": change.run_id,
        "reason": change.reason,
        "published_at": change.published_at.isoformat(sep=" "),
    }


def _text(at: dt.datetime | None) -> str | None:
    return None if at is None else at.isoformat(sep=" ")
