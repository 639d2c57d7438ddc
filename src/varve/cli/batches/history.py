"""`varve history | folders | pin | unpin`: the batches there are, what was in force when, and which must stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from varve.catalog.catalog import Catalog
from varve.catalog.history.history import History
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.cli.selection import declared, matching, size_text, who
from varve.model.batch import BatchId
from varve.model.errors import VarveError
from varve.services.postgres import connect
from varve.stores.open import store_type

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from varve.catalog.history.rows import CurrentChange, PastBatch


def opened() -> AbstractContextManager[History]:
    """The history over a connection of its own, with the catalog's tables up to date."""
    from contextlib import contextmanager

    @contextmanager
    def open_it() -> Iterator[History]:
        with connect(chosen_settings(), application="varve history") as connection:
            Catalog(connection).ensure_schema()
            yield History(connection)

    return open_it()


def built(history: History, dataset: str | None) -> dict[str, str]:
    """The kind of store of this dataset (None: of all) that was ever built. Raises VarveError where it never was."""
    kinds = history.stores()
    if dataset is not None and dataset not in kinds:
        raise VarveError(f"nothing of {dataset!r} was ever built; there are {', '.join(kinds) or 'none'}.")
    return {name: kind for name, kind in kinds.items() if dataset in {None, name}}


def history(dataset_name: str, words: Sequence[str], *, run_id: str | None, limit: int) -> list[dict[str, Any]]:
    """The batches as plain values, newest first in each partition."""
    dataset = declared(dataset_name)
    with opened() as found:
        paths = _matching(found, dataset_name, words) if words else None
        batches = found.batches(dataset.name, paths, run_id=run_id, limit=limit)
    return [_batch(batch) for batch in batches]


def changes(dataset_name: str, words: Sequence[str], *, limit: int) -> list[dict[str, Any]]:
    """What was put in force when, the last change first."""
    dataset = declared(dataset_name)
    with opened() as found:
        paths = _matching(found, dataset_name, words) if words else None
        return [_change(change) for change in found.changes(dataset.name, paths, limit=limit)]


def folders(dataset_name: str, words: Sequence[str]) -> list[dict[str, Any]]:
    """Where the batches lie that are in force. Raises VarveError for a dataset whose store has none."""
    dataset = declared(dataset_name)
    if not store_type(dataset.store).in_folders:
        raise VarveError(f"{dataset} lies in the {dataset.store}, not in folders: read {dataset.name} there.")
    with opened() as found:
        current = Catalog(found.connection).current(dataset.name)
    return [
        {"partition": path, "batch_id": current[path].batch_id.millis, "location": current[path].location}
        for path in matching(dataset, words, current)
    ]


def show_folders(found: Sequence[dict[str, Any]]) -> None:
    """The folders, bare: lines for a program."""
    for one in found:
        typer.echo(one["location"])


def show_history(console: Console, dataset_name: str, batches: Sequence[dict[str, Any]]) -> None:
    """The batches for people."""
    columns = ("partition", "batch", "began (UTC)", "state", "rows", "size", "run", "remarks")
    table = Table(*columns, title=dataset_name, title_justify="left")
    for one in batches:
        remarks = [f"pinned by {pin['owner']}: {pin['reason']}" for pin in one["pins"]]
        remarks += [str(one["failure"]).splitlines()[0]] if one["failure"] else []
        state = f"[bold green]{one['state']}[/]" if one["in_force"] else one["state"]
        size = "" if one["bytes"] is None else size_text(one["bytes"])
        rows = "" if one["rows"] is None else f"{one['rows']:,}"
        table.add_row(
            one["partition"], str(one["batch_id"]), str(one["started_at"])[:19], state, rows, size,
            one["run_id"][:8], "; ".join(remarks),
        )  # fmt: skip
    console.print(table if batches else f"{dataset_name} has no batches there.")


def show_changes(console: Console, dataset_name: str, found: Sequence[dict[str, Any]]) -> None:
    """The changes for people."""
    table = Table("when (UTC)", "partition", "batch", "by", "run", "reason", title=dataset_name, title_justify="left")
    for one in found:
        batch = "none any more" if one["batch_id"] is None else str(one["batch_id"])
        table.add_row(one["published_at"][:19], one["partition"], batch, one["kind"], one["run_id"], one["reason"])
    console.print(table if found else f"Nothing of {dataset_name} was ever in force there.")


def pin(
    dataset_name: str,
    words: Sequence[str],
    *,
    batch: int | None,
    owner: str | None,
    reason: str,
    expires_at: dt.datetime | None,
) -> list[dict[str, Any]]:
    """Pin a batch of the matching partitions, or (batch None) what is in force there; what was pinned."""
    dataset = declared(dataset_name)
    with opened() as found:
        # Taken anew where what is in force changes in between: a pin of a swept batch fails, and nothing is lost.
        paths = _matching(found, dataset_name, words) if words else None
        if batch is not None:
            wanted = {BatchId(batch): paths}
        else:
            wanted = {}
            for path, current in Catalog(found.connection).current(dataset.name).items():
                if paths is None or path in paths:
                    wanted.setdefault(current.batch_id, []).append(path)  # type: ignore[union-attr]
            if not wanted:
                raise VarveError(f"nothing of {dataset} is in force there. Nothing was pinned; give --batch.")
        name = owner or who()
        with found.connection.transaction():
            return [
                {"partition": path, "batch_id": batch_id.millis, "owner": name}
                for batch_id, listed in sorted(wanted.items())
                for path in found.pin(dataset.name, batch_id, listed, owner=name, reason=reason, expires_at=expires_at)
            ]


def unpin(dataset_name: str, words: Sequence[str], *, batch: int | None, owner: str | None) -> int:
    """Take pins off; how many. Raises VarveError where there was none."""
    dataset = declared(dataset_name)
    with opened() as found:
        paths = _matching(found, dataset_name, words) if words else None
        pinned = {one.batch_id for one in found.batches(dataset.name, paths) if one.pins}
        wanted = pinned if batch is None else {BatchId(batch)}
        with found.connection.transaction():
            taken = sum(found.unpin(dataset.name, batch_id, paths, owner=owner) for batch_id in wanted)
    if not taken:
        whose = f" of {owner}" if owner else ""
        raise VarveError(f"there is no pin{whose} on {dataset} {' '.join(words)}; `varve history` shows them.")
    return taken


def _matching(found: History, dataset_name: str, words: Sequence[str]) -> list[str]:
    every = {batch.partition for batch in found.batches(dataset_name)}
    return matching(declared(dataset_name), words, every)


def _batch(batch: PastBatch) -> dict[str, Any]:
    return {
        "partition": batch.partition,
        "batch_id": batch.batch_id.millis,
        "state": batch.state.value,
        "in_force": batch.in_force,
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
