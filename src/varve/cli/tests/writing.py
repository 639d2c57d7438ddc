"""`varve test new`: writes a test from the batches that a partition reads now. Nothing is published.

Not here: which rows are taken, and what the dataset makes of them (varve/testing/sampling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cli.context import chosen_project
from varve.cli.selection import by_column, dataset_named, spelt_out
from varve.model.errors import UnknownPartition, counted
from varve.testing.sampling.new import write_test

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


def new(
    console: Console,
    dataset: str,
    words: Sequence[str],
    *,
    rows: int,
    masked: Sequence[str],
    output: Path | None,
    name: str | None,
) -> None:
    """Write the test and say where it is. Raises UnknownPartition for words that name none, and see `write_test`."""
    words = spelt_out(dataset_named(dataset), words)
    if without := [word for word in words if "=" not in word]:
        raise UnknownPartition(f"{without[0]!r} names no partition of {dataset}; write column=value.")
    partition = by_column(words)
    written = write_test(
        chosen_project(), dataset.replace("/", "."), partition, rows=rows, masked=masked, output=output, name=name
    )
    taken = ", ".join(f"{counted(count, 'row')} of {read}" for read, count in written.taken.items()) or "no inputs"
    expected = counted(written.made, "row")
    message = f"{written.path} has the test {written.name!r}: {taken}; it expects {expected}."
    console.print(message, markup=False, highlight=False, soft_wrap=True)
    console.print(f"Look at what it expects, and run it: varve test {dataset}", highlight=False, soft_wrap=True)
