"""Finding partitions, batches and runs by a text that a person has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL

from varve.model.partitions.key import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

_MOST = 100
_LARGEST = 2**63 - 1
_PARTITIONS = SQL("select dataset, partition from varve.current where {} order by 1, 2 limit %s")
_HAS_WORD = SQL("lower(dataset || ' ' || partition) like any (%s::text[])")
_BATCHES = "select dataset, partition, state from varve.batch where batch_id = %s order by 1, 2 limit %s"
_RUNS = """
    select run_id, count(*), max(published_at) from varve.publish where starts_with(run_id, %s)
    group by 1 order by 3 desc limit %s
"""


@dataclass(frozen=True)
class Search:
    """What is found in a catalog, at most a hundred of each."""

    connection: psycopg.Connection

    def partitions(self, words: Sequence[str]) -> list[dict[str, Any]]:
        """The current partitions whose dataset or path has each of the words, whichever case it is in.

        A word may be written as in the path, or as it is shown to people: `hour=2026-11-01 13:00:00, store=Bern`.
        """
        statement = _PARTITIONS.format(SQL(" and ").join([_HAS_WORD] * len(words)))
        rows = self.connection.execute(statement, [*map(_spellings, words), _MOST])
        return [{"dataset": dataset, "partition": partition} for dataset, partition in rows]

    def batches(self, text: str) -> list[dict[str, Any]]:
        """The batches of that number, in any state."""
        if not text.isascii() or not text.isdigit() or int(text) > _LARGEST:
            return []
        rows = self.connection.execute(_BATCHES, (int(text), _MOST))
        return [{"dataset": dataset, "partition": partition, "state": state} for dataset, partition, state in rows]

    def runs(self, text: str) -> list[dict[str, Any]]:
        """The runs that have published something and whose id begins so, the newest first."""
        rows = self.connection.execute(_RUNS, (text, _MOST))
        return [{"run": run, "publishes": count, "at": f"{at:%Y-%m-%d %H:%M:%S} UTC"} for run, count, at in rows]


def _spellings(word: str) -> list[str]:
    """The patterns of the texts that have this word as it is, or as a path has it: of a value, or of `name=value`."""
    spellings = set[str]()
    for written in (word, word.removesuffix(",") or word):
        name, equals, value = written.partition("=")
        spellings |= {written, escape(written), f"{name}{equals}{escape(value)}"}
    return sorted(map(_containing, spellings))


def _containing(word: str) -> str:
    """The pattern of texts in lower case that have this word somewhere; what stands for any letter in it does not."""
    plain = word.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{plain}%"
