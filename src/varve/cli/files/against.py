"""`varve check --against`: compare two versions of a project's datasets and name what the change breaks, and whose.

Not here: what counts as a break of a query (varve/sql/checks/breaking.py), who reads a changed column through others
(varve/planning/changes), and how it is printed (changes_text.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from varve.cli.files.versions import other_version
from varve.dagster.assets.python_files import broken_modules
from varve.dagster.snapshots import columns_of, snapshots_of
from varve.model.errors import VarveError
from varve.planning.changes.changes import DatasetChange, column_changes, dataset_changes
from varve.planning.changes.snapshot import DatasetSnapshot
from varve.sql.checks.breaking import Declared, compared, holds
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.sql_project import sources_of
from varve.sql.syntax.errors import SqlErrors
from varve.sql.syntax.header import parse
from varve.sql.syntax.header_text import declared_name
from varve.stores.open import consequences_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from varve.cli.files.versions import Version
    from varve.model.evolution import Consequence
    from varve.sql.checks.breaking import Break
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset


@dataclass(frozen=True)
class BrokenUse:
    """A place that a change breaks.

    Attributes:
        dataset: the reader that is broken.
        upstream: the dataset that has changed, and `column` the column of it; "" where the dataset is gone.
        owners: who is responsible for the reader.
        place: `file:line:col`, or the file and line of a function; "" where nobody can tell.
        problem: the same as a problem of a SQL file; None for a dataset of Python.
        certain: False for a function that has itself changed: whether it fits now, only its author can tell.
    """

    dataset: str
    upstream: str
    column: str
    message: str
    owners: tuple[str, ...]
    place: str
    problem: Problem | None = None
    certain: bool = True


@dataclass(frozen=True)
class Comparison:
    """What the working tree changes compared with another version.

    Attributes:
        changes: the datasets that are new, gone, or have other columns, each with who reads what has changed.
        broken_uses: every place that the change breaks.
        uncompared: the datasets that cannot be used in the other version, by name or file.
        consequences: what follows for the batches that the other version has published, by dataset.
        errors: what is wrong in the files here otherwise, whatever has made it wrong.
    """

    against: str
    changes: tuple[DatasetChange, ...]
    broken_uses: tuple[BrokenUse, ...]
    uncompared: tuple[str, ...]
    consequences: Mapping[str, Sequence[Consequence]] = field(default_factory=dict)
    errors: tuple[Problem, ...] = ()

    @property
    def harmless(self) -> bool:
        """Whether no use is broken for certain, and no file has an error."""
        return not self.breaks and not self.errors

    @property
    def breaks(self) -> list[BrokenUse]:
        """The uses that are broken for certain."""
        return [use for use in self.broken_uses if use.certain]


def compare(folder: Path, against: str, files: SqlFiles) -> Comparison:
    """Compare the datasets of a folder with those of another version of it; `files` are its SQL files as they are now.

    Files with errors are compared as far as they can be read. Raises VarveError where the other version cannot be read.
    """
    other = other_version(folder, against)
    return compared_with(folder, files, other, against)


def compared_with(folder: Path, files: SqlFiles, other: Version, against: str) -> Comparison:
    """See `compare`."""
    now, old = _current(folder, files), other.datasets
    parsed, unreadable = _parsed(folder)
    if broken_modules(folder):
        # What modules declare that cannot be imported, because of broken SQL, is taken for unchanged.
        unreadable |= {name for name, snapshot in old.items() if snapshot.in_python and name not in now}
    declared = {name: _declared(sql, files) for name, sql in parsed.items()}
    declared |= {
        name: Declared(name, (), dict(snapshot.columns)) for name, snapshot in now.items() if name not in declared
    }
    kept = {name: old[name] for name in unreadable if name in old and name not in declared}
    declared |= {name: Declared(name, (), dict(snapshot.columns)) for name, snapshot in kept.items()}
    breaks, columns = compared({name: snapshot.columns for name, snapshot in old.items()}, declared)
    new = {**kept, **{name: _snapshot(name, now, old, parsed, columns) for name in declared if name not in kept}}
    uses = [
        *(_use_in_query(broken, parsed[broken.dataset]) for broken in breaks),
        *_uses_in_python(old, new),
    ]
    return Comparison(
        against,
        tuple(dataset_changes(_comparable(old, other, new), _comparable(new, other, old), holds)),
        tuple(sorted(uses, key=lambda use: (use.upstream, use.column, use.dataset, use.place))),
        other.broken,
        _consequences(old, now),
    )


def _consequences(
    old: Mapping[str, DatasetSnapshot], new: Mapping[str, DatasetSnapshot]
) -> dict[str, Sequence[Consequence]]:
    """What follows for the batches of each dataset that both versions have; another store is told as such."""
    consequences: dict[str, Sequence[Consequence]] = {}
    for name, after in sorted(new.items()):
        before = old.get(name)
        if before is None or before.declaration is None or after.declaration is None:
            continue
        if listed := consequences_of(before.store, before.declaration, after.store, after.declaration):
            consequences[name] = listed
    return consequences


def _current(folder: Path, files: SqlFiles) -> dict[str, DatasetSnapshot]:
    try:
        return snapshots_of(folder, files)
    except VarveError:
        raise
    except Exception as error:
        # Whatever a module of somebody else raises.
        raise VarveError(
            f"{folder}: its Python files cannot be imported: {type(error).__name__}: {error}. Nothing was compared."
        ) from error


def _comparable(
    version: Mapping[str, DatasetSnapshot], other: Version, counterpart: Mapping[str, DatasetSnapshot]
) -> dict[str, DatasetSnapshot]:
    """A version without the datasets of which the other version has only a broken form."""
    return {name: snapshot for name, snapshot in version.items() if name in counterpart or name not in other.broken}


def _parsed(folder: Path) -> tuple[dict[str, SqlDataset], set[str]]:
    """The files of a folder by dataset, and the names of the datasets whose files cannot be read."""
    parsed, unreadable = {}, set()
    for source in sources_of(folder):
        try:
            sql = parse(source)
            scopes_of(sql)
        except SqlErrors:
            unreadable.add(declared_name(source))
        else:
            parsed[sql.name] = sql
    return parsed, unreadable


def _declared(sql: SqlDataset, files: SqlFiles) -> Declared:
    partitions = {column.name.lower(): column.type.lower() for column in sql.partition_columns}
    columns: Mapping[str, str] | None = {column.name.lower(): column.type.lower() for column in sql.columns} or None
    if sql.name in dict(files):
        dataset = files[sql.name].dataset
        columns = columns_of(dataset)
        partitions = {column.name.lower(): column.type.lower() for column in dataset.partition_columns}
    variables = {variable: kind.lower() for variable, kind in scopes_of(sql).types.items()}
    return Declared(sql.name, sql.queries, columns, partitions, variables)


def _snapshot(
    name: str,
    now: Mapping[str, DatasetSnapshot],
    old: Mapping[str, DatasetSnapshot],
    parsed: Mapping[str, SqlDataset],
    columns: Mapping[str, Mapping[str, str]],
) -> DatasetSnapshot:
    """A dataset of the working tree, with the columns by which its readers were judged."""
    if name in now:
        return replace(now[name], columns=columns[name])
    before = old.get(name)
    owners = parsed[name].owners if name in parsed else before.owners if before else ()
    file = parsed[name].source.path if name in parsed else ""
    return DatasetSnapshot(name, columns[name], owners, before.reads if before else {}, None, file)


def _use_in_query(broken: Break, sql: SqlDataset) -> BrokenUse:
    problem = sql.problem(sql.span_at(broken.node), broken.message)
    return BrokenUse(
        broken.dataset,
        broken.upstream,
        broken.column,
        broken.message,
        sql.owners,
        problem.place,
        problem,
    )


def _uses_in_python(old: Mapping[str, DatasetSnapshot], new: Mapping[str, DatasetSnapshot]) -> Iterator[BrokenUse]:
    """Yield what breaks of the datasets of Python, by the columns that they say they read; else they read all."""
    for reader in new.values():
        if not reader.in_python:
            continue
        before = old.get(reader.name)
        unchanged = before is not None and before.code_version == reader.code_version
        for upstream, columns in reader.reads.items():
            if upstream not in old:
                continue
            says_all = "reads all columns of it: " if columns is None else ""
            certain = unchanged or columns is not None
            use = BrokenUse(reader.name, upstream, "", "", reader.owners, reader.file, certain=certain)
            if upstream not in new:
                message = f"{upstream} is no longer there; take it out, or keep the dataset."
                yield replace(use, message=message, certain=True)
                continue
            for change in column_changes(old[upstream].columns, new[upstream].columns, holds, new[upstream].renames):
                if change.breaks and reader.reads_column(upstream, change.column):
                    yield replace(use, column=change.column, message=f"{says_all}{change.message(upstream)}")
