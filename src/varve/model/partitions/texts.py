"""Values as people write them: lengths of time in SQL files, partitions on a command line.

The words of a command hold the values as they are, `day=2026-11-05 store='a/b'`; a path (`day=2026-11-05/store=a%2Fb`)
escapes them, so that a path with blanks for its slashes would name another partition, or none.

Not here: reading them (varve/sql/syntax/clauses/timeseries.py, varve/cli/selection.py), and paths (key.py).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from varve.model.partitions.key import parse_path

if TYPE_CHECKING:
    import datetime as dt

_UNITS = ((86_400, "DAY"), (3_600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))


def length_text(length: dt.timedelta) -> str:
    """A length of time in the largest unit that divides it: `6 HOURS`."""
    seconds = int(length.total_seconds())
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size} {unit}{'' if seconds == size else 'S'}"


def command_words(path: str) -> str:
    """Return the words that name the partition of this path, quoted for a shell; "" for one without partitions."""
    return " ".join(shlex.quote(f"{name}={text}") for name, text in parse_path(path))
