"""`varve check --against`: compare two versions of the SQL files and name the files that the change breaks.

Not here: the rules that say what counts as a break (varve/sql/checks/breaking.py).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.sql_assets import python_datasets
from varve.model.errors import VarveError
from varve.sql.checks.breaking import Declared, breaks
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.sql_project import compiled, sources_of
from varve.sql.syntax.errors import Problem, SourceFile, SqlErrors
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset


def refuse_breaks(folder: Path, against: str) -> int:
    """Return how many SQL datasets the other version has.

    Raises SqlErrors with every use of a column that the new version breaks.
    """
    # Only one version of the Python files can be imported here, so both sides use it.
    python_columns = {name: _columns(dataset) for name, dataset in python_datasets(folder).items()}
    old_datasets = compiled(_sources(folder, against), lambda: python_datasets(folder))
    old = {**python_columns, **{name: _columns(sql_asset.dataset) for name, sql_asset in old_datasets.items()}}
    parsed = {sql_file.name: sql_file for sql_file in map(parse, sources_of(folder))}
    new = {
        name: Declared(
            name,
            sql.queries,
            {column.name.lower(): column.type.lower() for column in sql.columns} or None,
            {column.name.lower(): column.type.lower() for column in sql.partition_columns},
            {variable: kind.lower() for variable, kind in scopes_of(sql).types.items()},
        )
        for name, sql in parsed.items()
    }
    new |= {name: Declared(name, (), columns) for name, columns in python_columns.items() if name not in new}
    problems: list[Problem] = []
    for broken_use in breaks(old, new):
        sql = parsed[broken_use.dataset]
        problems.append(sql.problem(sql.span_at(broken_use.node), broken_use.message))
    if problems:
        raise SqlErrors(problems)
    return len(old_datasets)


def _columns(dataset: Dataset) -> dict[str, str]:
    columns = (*dataset.schema.columns, *dataset.partition_columns)
    return {column.name.lower(): column.type.lower() for column in columns}


def _sources(folder: Path, against: str) -> list[SourceFile]:
    """Return the SQL files of the other version: those of a folder, or of a git revision of the same folder."""
    if Path(against).is_dir():
        return sources_of(Path(against))
    names = _git(folder, "ls-tree", "-r", "--name-only", against, "--", ".").splitlines()
    return [
        SourceFile(name, _git(folder, "show", f"{against}:./{name}"), str(folder.parent))
        for name in names
        if name.endswith(".sql")
    ]


def _git(folder: Path, *arguments: str) -> str:
    completed = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    if completed.returncode:
        error_lines: Sequence[str] = completed.stderr.strip().splitlines() or ["git failed"]
        raise VarveError(f"--against is neither a folder nor a git revision of {folder}: {error_lines[0]}")
    return completed.stdout
