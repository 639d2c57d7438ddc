"""The console that all commands print to, and its tables. Not here: what the commands print."""

from __future__ import annotations

import os
from typing import Any

import rich.table
from rich.console import Console

# The width where the output is a file or a pipe: rich would cut everything to 80 columns there.
_FILE_COLUMNS = 160


class Table(rich.table.Table):
    """A table that folds long cells into the next line; rich by itself would cut partitions and paths short."""

    def add_column(self, *words: Any, **options: Any) -> None:
        """Add a column as rich does, with `overflow="fold"` unless the caller says otherwise."""
        super().add_column(*words, **{"overflow": "fold", **options})


def open_console() -> Console:
    """Return a console as wide as the terminal; without a terminal and COLUMNS, one of 160 columns."""
    # Without emoji: rich would make a picture of a part of a value such as 00:ab:12, or of SQL such as ':id:'.
    console = Console(emoji=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_COLUMNS, emoji=False)


def open_error_console() -> Console:
    """Return a console for what is said beside the output: errors and progress."""
    return Console(stderr=True, emoji=False)


def without_secrets(value: object) -> str:
    """Return a text, such as that of an error, without the passwords of the addresses in it."""
    from varve.services.secrets import redacted

    return redacted(str(value))
