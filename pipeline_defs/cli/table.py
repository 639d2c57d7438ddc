"""Tables of the terminal. Not here: what is in them."""

from __future__ import annotations

from typing import Any

import rich.table


class Table(rich.table.Table):
    """A table whose cells go on in the next line where they do not fit: rich would cut partitions and paths short."""

    def add_column(self, *words: Any, **options: Any) -> None:
        """The same, folding."""
        super().add_column(*words, **{"overflow": "fold", **options})
