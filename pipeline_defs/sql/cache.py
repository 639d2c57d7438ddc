"""What was inferred of each file, kept under a hash of all that it depends on (seed 001).

The key of a file is a hash of its own text, the versions of what reads it, and the columns of what it reads: not the
keys of those, so that a change upstream that changes no columns ends there (early cutoff). Trees are not kept: reading
them back costs more than half of making them anew (research/sqlplanner.md C); conditions are kept as text.

Not here: where the text of the cache lies (the CLI and the code location read and write it).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from pipeline_defs.sql.dependencies import Dependencies
from pipeline_defs.sql.relations import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pipeline_defs.sql.inference import Output

# Raised whenever the same text would be inferred otherwise.
_VERSION = 1


@dataclass(frozen=True)
class KeptScan:
    """A scan and its conditions as text."""

    dataset: str
    columns: dict[str, str]
    conditions: tuple[str, ...]
    start: int = -1
    end: int = -1


@dataclass(frozen=True)
class Entry:
    """What was inferred of one file.

    Attributes:
        columns: (name, type, nullable) of what it gives out, in order.
        lineage: for each column the columns (dataset, name) that it is made of.
        scans: for each of its queries its scans.
        verified: what Spark's analyzer said of types that are not certain, by column.
    """

    columns: tuple[tuple[str, str, bool], ...]
    lineage: dict[str, tuple[tuple[str, str], ...]]
    scans: tuple[tuple[KeptScan, ...], ...]
    verified: dict[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, str]:
        """The columns and their types, with what the analyzer said."""
        return {name: self.verified.get(name, kind) for name, kind, _ in self.columns}

    def dependencies(self) -> tuple[Dependencies, ...]:
        """The conditions of each query, as trees again."""
        return tuple(_restored(scans) for scans in self.scans)


@dataclass
class Cache:
    """Entries by file, each with the key that it was made under.

    Attributes:
        hits, misses: how often an entry was found, and how often made.
    """

    entries: dict[str, tuple[str, Entry]] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0

    @classmethod
    def loads(cls, text: str) -> Cache:
        """A cache from its text; an empty one where the text is of another version or damaged: it is only a cache."""
        try:
            found = json.loads(text)
            if found["version"] != _versions():
                return cls()
            return cls({name: (key, _entry(entry)) for name, (key, entry) in found["entries"].items()})
        except (ValueError, KeyError, TypeError):
            return cls()

    def dumps(self) -> str:
        """The text of the cache."""
        entries = {name: (key, asdict(entry)) for name, (key, entry) in sorted(self.entries.items())}
        return json.dumps({"version": _versions(), "entries": entries})

    def entry(self, name: str, key: str, make: Callable[[], Entry]) -> Entry:
        """The entry of a file under a key; made, and kept, where there is none."""
        kept = self.entries.get(name)
        if kept is not None and kept[0] == key:
            self.hits += 1
            return kept[1]
        self.misses += 1
        made = make()
        self.entries[name] = (key, made)
        return made

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget files that are no more."""
        wanted = set(names)
        self.entries = {name: kept for name, kept in self.entries.items() if name in wanted}


def key_of(text: str, upstream: Mapping[str, Mapping[str, str]]) -> str:
    """The key of a file: its text, and the columns of the datasets that it reads."""
    hashed = hashlib.blake2b(digest_size=16)
    hashed.update(_versions().encode())
    hashed.update(text.encode())
    for name in sorted(upstream):
        hashed.update(json.dumps([name, list(upstream[name].items())]).encode())
    return hashed.hexdigest()


def entry_of(outputs: Iterable[Output], found: Iterable[Dependencies]) -> Entry:
    """What to keep of an inference."""
    listed = list(outputs)
    return Entry(
        tuple((each.name, each.type, each.nullable) for each in listed),
        {each.name: tuple(sorted(each.sources)) for each in listed},
        tuple(tuple(_kept(scan) for scan in each.scans) for each in found),
    )


def _kept(scan: Scan) -> KeptScan:
    meta = scan.table.this.meta
    conditions = tuple(each.sql("spark") for each in scan.conditions)
    return KeptScan(scan.dataset, dict(scan.columns), conditions, meta.get("start", -1), meta.get("end", -1))


def _restored(scans: tuple[KeptScan, ...]) -> Dependencies:
    found = []
    for place, kept in enumerate(scans):
        table = exp.to_table(kept.dataset)
        if kept.start >= 0:
            table.this.meta.update(start=kept.start, end=kept.end)
        conditions = [sqlglot.parse_one(each, dialect="spark") for each in kept.conditions]
        found.append(Scan(place, kept.dataset, table, kept.columns, conditions))
    return Dependencies(tuple(found))


def _entry(found: dict[str, object]) -> Entry:
    columns, lineage, scans, verified = (found[name] for name in ("columns", "lineage", "scans", "verified"))
    return Entry(
        tuple((name, kind, nullable) for name, kind, nullable in columns),  # type: ignore[attr-defined]
        {name: tuple((a, b) for a, b in made) for name, made in lineage.items()},  # type: ignore[attr-defined]
        tuple(
            tuple(KeptScan(**{**scan, "conditions": tuple(scan["conditions"])}) for scan in query)
            for query in scans  # type: ignore[attr-defined]
        ),
        dict(verified),  # type: ignore[call-overload]
    )


@cache
def _versions() -> str:
    return f"{_VERSION}/{metadata.version('sqlglot')}"
