"""The console of all commands, and its tables. Not here: what is printed."""

from __future__ import annotations

import os
from typing import Any

import rich.table
from rich.console import Console

# Of what is no terminal: a file or a pipe, in which rich would cut everything to 80 columns.
_FILE_COLUMNS = 160


class Table(rich.table.Table):
    """A table whose cells go on in the next line where they do not fit: rich would cut partitions and paths short."""

    def add_column(self, *words: Any, **options: Any) -> None:
        """The same, folding."""
        super().add_column(*words, **{"overflow": "fold", **options})


def open_console() -> Console:
    """A console as wide as the terminal, or wide enough for our tables where there is none and COLUMNS says nothing."""
    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_COLUMNS)
