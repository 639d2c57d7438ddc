"""Which partitions of a dataset, or of many at once, are made from anything but what is current, or have other facts.

Not here: who asks, of one dataset (facts.py) or of a whole graph (facts_together.py).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from varve.catalog.planning import statements
from varve.planning.judgement.code import MadeBy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.planning.judgement.facts import WantedInputs


class Source(NamedTuple):
    """A source of a dataset, and the table of the catalog that has its current versions.

    Attributes:
        name: its name in traces.
        dataset: its name in the table.
        paths: by partition, the partitions of the source that it reads; None: each reads the one with its own path.
        version: the column of the version.
    """

    name: str
    dataset: str
    paths: Mapping[str, Sequence[str]] | None
    table: str = "current"
    version: str = "batch_id"

    def identifiers(self) -> dict[str, sql.Composable]:
        """The names of its table and column, for statements."""
        return {"table": sql.Identifier(self.table), "version": sql.Identifier(self.version)}


def sources_of(dataset: str, landing: str, reads: Sequence[WantedInputs]) -> tuple[Source, ...]:
    """The sources of a dataset in the order in which a trace has them; `landing` as in `BulkFacts.unsettled`."""
    sources = [Source(read.source, read.source, read.paths) for read in reads]
    if landing:
        sources.append(Source(landing, dataset, None, "arrival", "fingerprint"))
    return tuple(sorted(sources, key=lambda source: source.name))


def with_notes(connection: psycopg.Connection, datasets: Sequence[str]) -> dict[str, set[str]]:
    """By dataset, the partitions with a fact that does not come from their current batch."""
    paths: dict[str, set[str]] = defaultdict(set)
    for dataset, path in connection.execute(statements.NOTED, {"datasets": list(datasets)}).fetchall():
        paths[dataset].add(path)
    return paths


def with_other_versions(
    connection: psycopg.Connection, datasets: Mapping[str, tuple[Source, ...]]
) -> dict[str, set[str]]:
    """By dataset, the partitions whose trace differs from the current versions of its sources, or made by other code.

    Each source is read at the partition's own path, and PostgreSQL compares. Datasets with as many sources, of the same
    kinds, are asked about in one statement.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for dataset, sources in datasets.items():
        alike[tuple([source.table for source in sources])].append(dataset)
    paths: dict[str, set[str]] = defaultdict(set)
    for names in alike.values():
        statement, parameters = _other_versions({name: datasets[name] for name in names})
        for dataset, path in connection.execute(statement, parameters).fetchall():
            paths[dataset].add(path)
    return paths


def _other_versions(datasets: Mapping[str, tuple[Source, ...]]) -> tuple[sql.Composed, list[list[str]]]:
    """The statement about datasets whose sources are of the same kinds, and its parameters: a list for each column."""
    kinds = next(iter(datasets.values()))
    joins: list[sql.Composable] = []
    comparisons: list[sql.Composable] = []
    for place, kind in enumerate(kinds):
        names = {
            "edge": sql.Identifier(f"e{place}"),
            "source": sql.Identifier("asked", f"source_{place}"),
            "name": sql.Identifier("asked", f"name_{place}"),
            "place": sql.Literal(place),
            **kind.identifiers(),
        }
        joins.append(sql.SQL(statements.AT_THE_SAME_PATH).format(**names))
        comparisons.append(sql.SQL(statements.SAME_VERSION).format(**names))
    columns = ["dataset", *chain.from_iterable((f"source_{place}", f"name_{place}") for place in range(len(kinds)))]
    other_versions = sql.SQL(statements.OTHER_VERSIONS).format(
        dataset=sql.Identifier("asked", "dataset"), joins=sql.SQL("").join(joins), count=sql.Literal(len(kinds)),
        comparisons=sql.SQL("").join(comparisons),
    )  # fmt: skip
    statement = sql.SQL(statements.OTHER_VERSIONS_TOGETHER).format(
        lists=sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(columns)),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        other_versions=other_versions,
    )
    rows = [
        [dataset, *chain.from_iterable((source.dataset, source.name) for source in sources)]
        for dataset, sources in datasets.items()
    ]
    return statement, [list(column) for column in zip(*rows, strict=True)]


def with_other_traces(connection: psycopg.Connection, dataset: str, sources: Sequence[Source]) -> set[str]:
    """The same of a dataset that reads partitions of other paths."""
    current_sources = [(source.paths, _trace_items_now(connection, source)) for source in sources]
    changed = set()
    for path, trace, made_by in connection.execute(statements.TRACES, (dataset,)).fetchall():
        current_inputs = [
            versions.get(upstream_path, "nothing")
            for paths, versions in current_sources
            for upstream_path in ((path,) if paths is None else sorted(paths.get(path, ())))
        ]
        if made_by == MadeBy.OTHER or trace != f"[{', '.join(current_inputs)}]":
            changed.add(path)
    return changed


def _trace_items_now(connection: psycopg.Connection, source: Source) -> dict[str, str]:
    """What a trace would say now of each partition of a source."""
    placeholders = {"name": sql.Placeholder("name"), "source": sql.Placeholder("source")}
    statement = sql.SQL(statements.READ_NOW).format(**source.identifiers(), **placeholders)
    return dict(connection.execute(statement, {"name": source.name, "source": source.dataset}).fetchall())
