"""What a folder of datasets declares, SQL and Python, as snapshots that two versions of it are compared by.

`python -m varve.dagster.snapshots FOLDER FILE` writes those of a folder: a version of Python files can only be imported
in a process that has imported no other.

Not here: the comparison (varve/planning/changes), and where another version comes from (varve/cli/files/versions.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from varve.catalog.rows import declaration
from varve.dagster.assets.datasets import DatasetAsset, with_rejected
from varve.dagster.assets.python_files import broken_modules, python_assets
from varve.dagster.assets.sql_folders import python_datasets
from varve.planning.changes.snapshot import DatasetSnapshot, as_values
from varve.sql import sql_project
from varve.sql.answers import Answers
from varve.sql.partitions.dependencies import inference
from varve.sql.values import ValueAnswers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varve.model.dataset import Dataset
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.sql_asset import SqlAsset


def usable_files(folder: Path) -> SqlFiles:
    """Return the SQL files of a folder that can be used; no cache of it is read or written."""
    sources = sql_project.sources_of(folder)
    return sql_project.usable(
        sources,
        lambda: python_datasets(folder),
        answers=Answers.beside(folder),
        value_answers=ValueAnswers.beside(folder),
    )


def snapshots_of(folder: Path, files: SqlFiles) -> dict[str, DatasetSnapshot]:
    """Return the snapshots of all datasets of a folder that can be used, by name."""
    return {
        snapshot.name: snapshot
        for snapshot in (
            *(
                _of_asset(asset, folder)
                for asset in with_rejected(python_assets(folder))
                if isinstance(asset, DatasetAsset)
            ),
            *(snapshot for sql_asset in files.values() for snapshot in _of_file(sql_asset)),
        )
    }


def _of_file(sql_asset: SqlAsset) -> Iterator[DatasetSnapshot]:
    dataset = sql_asset.dataset
    made_of = sql_asset.lineage if sql_asset.sql.query is not None else None
    yield DatasetSnapshot(
        dataset.name,
        columns_of(dataset),
        dataset.owners,
        _columns_read(sql_asset),
        # The partition columns of a query come from its scope.
        None if made_of is None else {name: tuple(sorted(sources)) for name, sources in made_of.items()},
        sql_asset.source.path,
        code_version=sql_asset.code_version,
        store=dataset.store,
        declaration=declaration(dataset),
    )
    if (rejected := dataset.rejected_dataset()) is not None:
        yield DatasetSnapshot(
            rejected.name, columns_of(rejected), rejected.owners, file=sql_asset.source.path,
            code_version=sql_asset.code_version, store=rejected.store, declaration=declaration(rejected),
        )  # fmt: skip


def _columns_read(sql_asset: SqlAsset) -> dict[str, tuple[str, ...]]:
    """Return the columns that the queries of a file name, or hand on by a `*`, by dataset."""
    read: dict[str, set[str]] = {name: set() for name in sql_asset.reads}
    for query in inference(sql_asset.sql, sql_asset.scopes, sql_asset.upstreams).queries:
        for use in query.uses:
            read.setdefault(use.column[0], set()).add(use.column[1])
    for sources in sql_asset.lineage.values():
        for upstream, column in sources:
            read.setdefault(upstream, set()).add(column)
    return {name: tuple(sorted(columns)) for name, columns in read.items()}


def _of_asset(asset: DatasetAsset, folder: Path) -> DatasetSnapshot:
    dataset = asset.dataset
    reads: dict[str, tuple[str, ...] | None] = {}
    for read in asset.reads:
        names = None if read.columns is None else [column.name.lower() for column in read.dataset.partition_columns]
        reads[read.dataset.name] = None if names is None else (*map(str.lower, read.columns or ()), *names)
    return DatasetSnapshot(
        dataset.name,
        columns_of(dataset),
        dataset.owners,
        reads,
        file=_place(asset, folder),
        in_python=True,
        code_version=asset.code_version,
        store=dataset.store,
        declaration=declaration(dataset),
    )


def _place(asset: DatasetAsset, folder: Path) -> str:
    """Return the file and the line of the function of a dataset; "" where it has none."""
    code = getattr(asset.compute, "__code__", None)
    if code is None:
        return ""
    file, root = Path(code.co_filename).resolve(), folder.resolve().parent
    return f"{file.relative_to(root) if file.is_relative_to(root) else file}:{code.co_firstlineno}"


def columns_of(dataset: Dataset) -> Mapping[str, str]:
    """Return the columns of a dataset in lower case, with their types; partition columns come last."""
    columns = (*dataset.schema.columns, *dataset.partition_columns)
    return {column.name.lower(): column.type.lower() for column in columns}


def main(folder: Path, file: Path) -> None:
    """Write the snapshots of a folder and what of it cannot be used, as JSON.

    Ends with 1 and a line where a module cannot be imported: nobody knows which datasets it declares.
    """
    files, modules = usable_files(folder), broken_modules(folder)
    if unreadable := [module for module in modules if module.errors]:
        sys.exit(f"{unreadable[0].headline}.")
    broken = [broken_dataset.title for broken_dataset in (*files.broken, *modules)]
    values = {"datasets": as_values(snapshots_of(folder, files).values()), "broken": broken}
    file.write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
