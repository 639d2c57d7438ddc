"""`varve check --against`: which files a change breaks, between two versions of the SQL files.

Not here: what a break is (sql/breaking.py).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_defs.model.errors import VarveError
from pipeline_defs.sql.breaking import Declared, breaks
from pipeline_defs.sql.errors import Problem, Source, SqlErrors
from pipeline_defs.sql.header import parse
from pipeline_defs.sql.project import compiled, sources_of
from pipeline_defs.sql.scopes import scopes_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def refuse_breaks(folder: Path, against: str) -> int:
    """How many datasets the other version has. Raises SqlErrors with each use of a column that is broken."""
    old = {
        name: {
            column.name.lower(): column.type.lower()
            for column in (*found.dataset.schema.columns, *found.dataset.partition_columns)
        }
        for name, found in compiled(_sources(folder, against), {}).items()
    }
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
    problems: list[Problem] = []
    for found in breaks(old, new):
        sql = parsed[found.dataset]
        problems.append(sql.problem(sql.span_at(found.node), found.message))
    if problems:
        raise SqlErrors(problems)
    return len(old)


def _sources(folder: Path, against: str) -> list[Source]:
    """The files of the other version: of a folder, or of a git revision of the same one."""
    if Path(against).is_dir():
        return sources_of(Path(against))
    names = _git(folder, "ls-tree", "-r", "--name-only", against, "--", ".").splitlines()
    return [Source(name, _git(folder, "show", f"{against}:./{name}")) for name in names if name.endswith(".sql")]


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        told: Sequence[str] = done.stderr.strip().splitlines() or ["git failed"]
        raise VarveError(f"--against is neither a folder nor a git revision of {folder}: {told[0]}")
    return done.stdout
