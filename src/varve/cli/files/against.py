"""`varve check --against`: which files a change breaks, between two versions of the SQL files.

Not here: what a break is (varve/sql/checks/breaking.py).
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
    """How many datasets the other version has. Raises SqlErrors with each use of a column that is broken."""
    # Of the Python files there is one version here: the one that can be imported.
    python = {name: _columns(found) for name, found in python_datasets(folder).items()}
    before = compiled(_sources(folder, against), lambda: python_datasets(folder))
    old = {**python, **{name: _columns(found.dataset) for name, found in before.items()}}
    parsed = {found.name: found for found in map(parse, sources_of(folder))}
    new = {
        name: Declared(
            name,
            sql.queries,
            {each.name.lower(): each.type.lower() for each in sql.columns} or None,
            {each.name.lower(): each.type.lower() for each in sql.partition_columns},
            {variable: kind.lower() for variable, kind in scopes_of(sql).types.items()},
        )
        for name, sql in parsed.items()
    }
    new |= {name: Declared(name, (), columns) for name, columns in python.items() if name not in new}
    problems: list[Problem] = []
    for found in breaks(old, new):
        sql = parsed[found.dataset]
        problems.append(sql.problem(sql.span_at(found.node), found.message))
    if problems:
        raise SqlErrors(problems)
    return len(before)


def _columns(dataset: Dataset) -> dict[str, str]:
    columns = (*dataset.schema.columns, *dataset.partition_columns)
    return {column.name.lower(): column.type.lower() for column in columns}


def _sources(folder: Path, against: str) -> list[SourceFile]:
    """The files of the other version: of a folder, or of a git revision of the same one."""
    if Path(against).is_dir():
        return sources_of(Path(against))
    names = _git(folder, "ls-tree", "-r", "--name-only", against, "--", ".").splitlines()
    return [
        SourceFile(name, _git(folder, "show", f"{against}:./{name}"), str(folder.parent))
        for name in names
        if name.endswith(".sql")
    ]


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        told: Sequence[str] = done.stderr.strip().splitlines() or ["git failed"]
        raise VarveError(f"--against is neither a folder nor a git revision of {folder}: {told[0]}")
    return done.stdout
