"""A partition as the words of a command line: `day=2026-11-05 store='a/b'`.

The words hold the values as they are; a path (`day=2026-11-05/store=a%2Fb`) escapes them. A path with blanks for its
slashes would name another partition, or none.

Not here: paths (key.py), and what words of a command mean (varve/cli/selection.py).
"""

from __future__ import annotations

import shlex

from varve.model.partitions.key import parse_path


def command_words(path: str) -> str:
    """Return the words that name the partition of this path, quoted for a shell; "" for one without partitions."""
    return " ".join(shlex.quote(f"{name}={text}") for name, text in parse_path(path))
