"""`varve diff`: what differs between two states of a dataset, first by partitions, then by rows.

Not here: which batches the two sides have (sides.py), and the comparison of rows (varve/stores/differences.py).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.history.history import History
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.cli.rows.cells import escaped, plain, text
from varve.cli.rows.declared import declared, key_of
from varve.cli.rows.sides import State, held, partition_differences, refuse_swept, sides_of
from varve.model.errors import counted
from varve.services.postgres import connect
from varve.services.spark import open_session
from varve.stores.differences import ADDED, CHANGED, REMOVED, SAME, NotAKey, as_multisets, by_key
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from varve.cli.rows.sides import PartitionDifference, Side
    from varve.model.batch import Batch
    from varve.stores.differences import Differences, Distribution

_LISTED = 40
_SIGNS = {ADDED: "[green]+[/]", REMOVED: "[red]-[/]", CHANGED: "[yellow]~[/]"}


@dataclass(frozen=True)
class Diff:
    """What differs between two sides of a dataset.

    Attributes:
        rows: how the rows differ of the partitions that both sides have with other content; None where there is none.
    """

    before: Side
    after: Side
    partitions: tuple[PartitionDifference, ...]
    rows: Differences | None

    @property
    def equal(self) -> bool:
        """Whether both sides have the same partitions with the same rows."""
        if any(partition.state in {State.ONLY_BEFORE, State.ONLY_AFTER} for partition in self.partitions):
            return False
        return self.rows is None or not any(self.rows.counts[word] for word in (ADDED, REMOVED, CHANGED))


def diff(
    name: str,
    words: Sequence[str],
    *,
    first: str | None,
    last: str | None,
    key: Sequence[str],
    columns: bool,
    limit: int,
) -> Diff:
    """Compare two sides of a dataset. Spark reads only partitions that differ by their batches and content hashes.

    Raises what `sides_of` raises, NotKept where rows were swept that had to be read, NotAKey for a key that is none.
    """
    dataset, settings = declared(name).dataset, chosen_settings()
    key_columns = tuple(key) or key_of(dataset)
    with connect(settings, application="varve diff") as connection, ExitStack() as holding:
        catalog, history = Catalog(connection), History(connection)
        catalog.ensure_schema()
        before, after = sides_of(history, dataset, words, first, last)
        partitions = partition_differences(before, after)
        paths = [partition.partition for partition in partitions if partition.state is State.DIFFERS]
        if not paths:
            return Diff(before, after, tuple(partitions), None)
        for side in (before, after):
            refuse_swept(side, paths)
            Generations(connection).refuse_unreadable(side.dataset, [side.batches[path] for path in paths])
            holding.enter_context(held(history, side, paths))
        session = cache(lambda: open_session(settings))
        old, new = (
            open_store(side.dataset.store, settings, catalog, session).read(
                side.dataset, [side.batches[path] for path in paths]
            )
            for side in (before, after)
        )
        try:
            rows = (
                by_key(dataset, old, new, key_columns, limit, distributions=columns)
                if key_columns
                else as_multisets(dataset, old, new, limit)
            )
        except NotAKey:
            # A unique index lets NULL come many times.
            if key:
                raise
            rows = as_multisets(dataset, old, new, limit)
    return Diff(before, after, tuple(partitions), rows)


def as_values(difference: Diff) -> dict[str, Any]:
    """The difference as plain values for `--json`."""
    rows = difference.rows
    return {
        "dataset": difference.after.dataset.name,
        "from": difference.before.title,
        "to": difference.after.title,
        "equal": difference.equal,
        "partitions": [
            {
                "partition": partition.partition,
                "state": partition.state,
                "from": _batch_values(partition.before),
                "to": _batch_values(partition.after),
            }
            for partition in difference.partitions
        ],
        "rows": None
        if rows is None
        else {
            "key": list(rows.key),
            **rows.counts,
            "columns": [
                {
                    "column": column.column,
                    "changed": column.rows,
                    **({} if column.before is None else {"before": _values(column.before)}),
                    **({} if column.after is None else {"after": _values(column.after)}),
                }
                for column in rows.columns
            ],
            "sample": [
                {"kind": row.kind, "times": row.times, "before": plain(row.before), "after": plain(row.after)}
                for row in rows.sample
            ],
        },
    }


def show(console: Console, difference: Diff) -> None:
    """Print the difference for people."""
    dataset = difference.after.dataset
    states = {state: [partition for partition in difference.partitions if partition.state is state] for state in State}
    counts = ", ".join(state.counted(len(partitions)) for state, partitions in states.items() if partitions)
    title = f"{dataset}: {difference.before.title} -> {difference.after.title}"
    console.print(f"[bold]{escaped(title)}[/]   partitions: {counts}", highlight=False)
    different = [
        partition
        for partition in difference.partitions
        if partition.state not in {State.SAME_BATCH, State.SAME_CONTENT}
    ]
    if different:
        table = Table("partition", "", "batch before", "rows", "batch after", "rows")
        for partition in different[:_LISTED]:
            table.add_row(partition.partition, partition.state, *_cells(partition.before), *_cells(partition.after))
        console.print(table)
        if (more := len(different) - _LISTED) > 0:
            console.print(f"and {more:,} more partitions; --json lists them all.")
    if difference.rows is not None:
        _show_rows(console, difference, difference.rows)
    if difference.equal:
        console.print("[green]equal[/]: the same rows on both sides.", highlight=False)


def _show_rows(console: Console, difference: Diff, rows: Differences) -> None:
    counts = [f"{counted(rows.counts[word], 'row')} {word}" for word in (ADDED, REMOVED, CHANGED, SAME)]
    how = f"by {', '.join(rows.key)}" if rows.key else "as they are, without a key"
    counts = [count for count in counts if rows.key or not count.endswith(CHANGED)]
    console.print(f"Compared {how}: {', '.join(counts)}.", highlight=False)
    if rows.columns:
        console.print(_columns_table(rows))
    names = [column.name for column in difference.after.dataset.read_columns()]
    changed = {column.column for column in rows.columns}
    shown = [name for name in names if not rows.key or name in rows.key or name in changed or _has_whole_rows(rows)]
    if rows.sample:
        table = Table("", *map(escaped, shown), title="Rows that differ", title_justify="left")
        for row in rows.sample:
            sign = _SIGNS[row.kind] + (f" {row.times} times" if row.times > 1 else "")
            table.add_row(sign, *[_cell(row.before, row.after, name) for name in shown])
        console.print(table)
        if (more := sum(rows.counts[word] for word in _SIGNS) - sum(row.times for row in rows.sample)) > 0:
            console.print(f"and {counted(more, 'more row')}; --limit shows them.", highlight=False)


def _has_whole_rows(rows: Differences) -> bool:
    return any(row.kind != CHANGED for row in rows.sample)


def _columns_table(rows: Differences) -> Table:
    with_values = any(column.before is not None for column in rows.columns)
    titles = [f"{what} {side}" for side in ("before", "after") for what in ("NULL", "min", "max", "avg")]
    table = Table("column", "rows changed", *(titles if with_values else ()))
    for column in rows.columns:
        values = [*_texts(column.before), *_texts(column.after)] if with_values else []
        table.add_row(escaped(column.column), f"{column.rows:,}", *values)
    return table


def _texts(side: Distribution | None) -> list[str]:
    if side is None:
        return [""] * 4
    mean = "" if side.mean is None else f"{side.mean:.6g}"
    bounds = ["" if value is None else escaped(text(value)) for value in (side.low, side.high)]
    return [f"{side.nulls:,}", *bounds, mean]


def _cell(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str) -> str:
    if before is None or after is None:
        return escaped(text((before or after or {})[name]))
    old, new = (escaped(text(side[name])) for side in (before, after))
    return new if before[name] == after[name] else f"[red]{old}[/] → [green]{new}[/]"


def _cells(batch: Batch | None) -> tuple[str, str]:
    return ("", "") if batch is None else (str(batch.batch_id), f"{batch.rows:,}")


def _batch_values(batch: Batch | None) -> dict[str, Any] | None:
    return None if batch is None else {"batch": batch.batch_id.millis, "rows": batch.rows, "content": batch.content}


def _values(side: Distribution) -> dict[str, Any]:
    return {"nulls": side.nulls, "min": plain(side.low), "max": plain(side.high), "avg": plain(side.mean)}
