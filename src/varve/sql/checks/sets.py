"""Problems of `DYNAMIC 'set' FROM (SELECT ...)` that only all files together show.

Not here: the shape of its query, which the parser checks (varve/sql/syntax/clauses/generators.py).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp

from varve.model.errors import nearest
from varve.model.partitions.dimension import DynamicDimension
from varve.sql.checks.volatile import CLOCKS, RANDOM
from varve.sql.syntax.body import span_of
from varve.sql.syntax.clauses.generators import parts_behind
from varve.sql.syntax.sql_file import DynamicSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset


class ParsedDraft(Protocol):
    """A parsed file, without knowledge of the datasets that it reads."""

    @property
    def name(self) -> str:
        """The name of the dataset that it declares."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the datasets that it reads."""

    @property
    def sql(self) -> SqlDataset:
        """The contents of the file."""


def set_problems(
    drafts: Mapping[str, ParsedDraft], datasets: Mapping[str, Dataset], declared_names: Collection[str]
) -> Iterator[Problem]:
    """Yield a problem for each set that is fed by itself, by two queries, or by a column that does not fit.

    So is one whose keys are of two types: a key of one dataset is none of the other, which would retire its partition.
    """
    yield from _type_problems(drafts, datasets)
    fed: dict[str, tuple[SqlDataset, DynamicSet]] = {}
    for draft in drafts.values():
        dataset = datasets.get(draft.name)
        if dataset is not None and not any(
            isinstance(dimension, DynamicDimension) and dimension.source is not None
            for dimension in dataset.partitioning.dimensions
        ):
            # A file that is cached is not parsed again for nothing.
            continue
        sql = draft.sql
        for generator in sql.generators:
            if not isinstance(generator, DynamicSet) or generator.source is None:
                continue
            first = fed.setdefault(generator.set_name, (sql, generator))
            assert first[1].source is not None
            if (first[1].source.digest, first[1].source.on_removal) != (
                generator.source.digest, generator.source.on_removal,
            ):  # fmt: skip
                yield sql.problem(
                    generator.span,
                    f"the set {generator.set_name!r} is filled by another query in {first[1].source.place}; say it in "
                    f"one place, and write DYNAMIC '{generator.set_name}' alone in the others.",
                )
            yield from _problems(sql, generator, drafts, datasets, declared_names)


def _type_problems(drafts: Mapping[str, ParsedDraft], datasets: Mapping[str, Dataset]) -> Iterator[Problem]:
    first: dict[str, tuple[str, type]] = {}
    for name, dataset in datasets.items():
        for dimension in dataset.partitioning.dimensions:
            if not isinstance(dimension, DynamicDimension):
                continue
            other, value_type = first.setdefault(dimension.set_name, (name, dimension.value_type))
            if value_type is dimension.value_type or name not in drafts:
                continue
            sql = drafts[name].sql
            for generator in sql.generators:
                if isinstance(generator, DynamicSet) and generator.set_name == dimension.set_name:
                    yield sql.problem(
                        generator.span,
                        f"the set {dimension.set_name!r} has {_type_name(value_type)} keys in {other}, and "
                        f"{_type_name(dimension.value_type)} keys here; declare one type in both, or name another set.",
                    )


def _type_name(value_type: type) -> str:
    return {str: "STRING", int: "BIGINT", dt.date: "DATE"}.get(value_type, value_type.__name__)


def _problems(
    sql: SqlDataset,
    generator: DynamicSet,
    drafts: Mapping[str, ParsedDraft],
    datasets: Mapping[str, Dataset],
    declared_names: Collection[str],
) -> Iterator[Problem]:
    source, key, table = generator.source, generator.key, generator.table
    assert source is not None
    assert key is not None
    assert table is not None
    if source.dataset not in declared_names and source.dataset not in datasets:
        near = nearest(source.dataset, sorted({*declared_names, *datasets}))
        yield sql.problem(table, f"nobody declares {source.dataset}.{near}")
        return
    if path := _path_back(generator.set_name, source.dataset, drafts, datasets):
        yield sql.problem(
            table,
            f"the set {generator.set_name!r} would be filled by itself: {' reads '.join(path)}, which has a partition "
            "for each of its keys. Read what those are made from.",
        )
        return
    if isinstance(key, exp.Null):
        yield sql.problem(generator.span, "NULL is no key of a set: no partition can be named by it. Name a column.")
        return
    upstream = datasets.get(source.dataset)
    if upstream is None:
        return
    types = {column.name.lower(): str(column.type) for column in upstream.schema.columns}
    types |= {column.name.lower(): str(column.type) for column in upstream.partition_columns}
    read = _table(key)
    for tree in (key, _condition(key)):
        yield from _expression_problems(sql, tree, read, source.dataset, types) if tree is not None else ()
    wanted = next(
        (column.type for column in sql.partition_columns if column.name.lower() in _columns(sql, generator)), ""
    )
    parts = parts_behind(key, read) if isinstance(key, exp.Column) else ()
    has = types.get(parts[0].name.lower()) if len(parts) == 1 else None
    has = key.to.sql("spark") if type(key) is exp.Cast else has
    if has and wanted and has != wanted:
        yield sql.problem(
            span_of(key) or table,
            f"{key.sql('spark')} is {has}, and the partition column of {generator.variable} is {wanted}; write "
            f"CAST({key.sql('spark')} AS {wanted}), or declare the column {has}.",
        )


def _expression_problems(
    sql: SqlDataset, tree: exp.Expr, table: exp.Table, dataset: str, types: Mapping[str, str]
) -> Iterator[Problem]:
    for node in tree.walk():
        name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, exp.Func) and not name:
            name = node.sql_name().upper()
        if name in CLOCKS | RANDOM:
            yield sql.problem(
                span_of(node) or sql.span_of("FOR"),
                f"{name} gives another value at another time, and the keys of a batch never change; take it out.",
            )
        if not isinstance(node, exp.Column) or node.name.upper() in CLOCKS:
            continue
        column = parts_behind(node, table)[0].name
        if column.lower() not in types:
            yield sql.problem(
                span_of(node) or sql.span_of("FOR"), f"{dataset} has no column {column}.{nearest(column, list(types))}"
            )


def _table(key: exp.Expr) -> exp.Table:
    query = key.find_ancestor(exp.Select)
    assert query is not None
    source = query.args.get("from_") or query.args["from"]
    table: exp.Table = source.this
    return table


def _condition(key: exp.Expr) -> exp.Expr | None:
    query = key.find_ancestor(exp.Select)
    where = query.args.get("where") if query is not None else None
    return None if where is None else where.this


def _columns(sql: SqlDataset, generator: DynamicSet) -> set[str]:
    """The partition column of the set's variable: the one that INSERT or LET gives its value, or of its name."""
    names = {generator.variable}
    for _ in range(len(sql.lets) + 1):
        names |= {
            named.name
            for named in (*sql.lets, *sql.inserts)
            if isinstance(value := named.expression.unnest(), exp.Column) and value.name.lower() in names
        }
    return names


def _sets_of(name: str, drafts: Mapping[str, ParsedDraft], datasets: Mapping[str, Dataset]) -> set[str]:
    """The sets of which a dataset has a partition for each key; a file with another problem has them too."""
    if name in datasets:
        dimensions = datasets[name].partitioning.dimensions
        return {dimension.set_name for dimension in dimensions if isinstance(dimension, DynamicDimension)}
    generators = drafts[name].sql.generators if name in drafts else ()
    return {generator.set_name for generator in generators if isinstance(generator, DynamicSet)}


def _path_back(
    set_name: str, source: str, drafts: Mapping[str, ParsedDraft], datasets: Mapping[str, Dataset]
) -> Sequence[str]:
    """The datasets from `source` up to one that has the set; empty where none has."""
    paths, seen = [[source]], {source}
    while paths:
        path = paths.pop(0)
        if set_name in _sets_of(path[-1], drafts, datasets):
            return path
        for name in drafts[path[-1]].reads if path[-1] in drafts else ():
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []
