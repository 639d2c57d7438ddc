"""`varve import TABLE`: write the EXTERNAL file of a table that the metastore has, or of a dataset of another project.

Not here: what its partitions mean (varve/sources/external/declaring.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from varve.cli.context import chosen_project, chosen_settings
from varve.model.errors import VarveError, some
from varve.model.partitions.key import parse_path
from varve.model.schema import ColumnType
from varve.services.spark import open_session
from varve.sources.external.declaring import ExistingTable, TableColumn, declaration_text
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

_TABLE = re.compile(r"[^.\s'\"`]+\.[^.\s'\"`]+")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def import_table(console: Console, table: str, *, name: str, copies: bool, only_print: bool) -> None:
    """Write the file of a table into the folder of the datasets, or print it.

    Raises VarveError for a table that is not there, that no dataset can have or that this project makes itself, and for
    a dataset or a file that exists.
    """
    if not _TABLE.fullmatch(table):
        raise VarveError(f"{table!r} names no table; write db.name.")
    dataset = name or table.lower()
    _refuse_declared(table, dataset, only_print=only_print)
    if not copies and (of_project := _of_project(dataset)) is not None:
        _write(console, dataset, of_project, f"{dataset} is declared in", only_print=only_print)
        return
    if copies and dataset == table.lower():
        raise VarveError(
            f"{table} is copied under a name of its own, as {dataset} is the table of others. Nothing was written. Say "
            f"which: varve import {table} --copy --as lake.{table.partition('.')[2].lower()}."
        )
    existing, left_out = existing_table(table, copies=copies)
    text = declaration_text(existing, dataset, copies=copies)
    comments = "".join(f"-- Left out: {reason}.\n" for reason in left_out)
    written = _write(console, dataset, text, f"{existing.name} is declared in", comments, only_print=only_print)
    if written:
        _tell(console, left_out)


def _refuse_declared(table: str, dataset: str, *, only_print: bool) -> None:
    """Raise VarveError for a table that this project makes, and where a dataset would be declared a second time."""
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.dagster.discovery import load_project

    datasets = load_project(chosen_project()).datasets
    declared = {asset.dataset.name: asset.dataset for asset in datasets if isinstance(asset, DatasetAsset)}
    own = declared.get(table.lower())
    if own is not None and own.external is None:
        raise VarveError(
            f"{own} is a dataset of this project, and no table of others: what is to read it here names it as it is. "
            "Nothing was written."
        )
    if dataset in declared and not only_print:
        raise VarveError(
            f"{dataset} is declared in this project already. Nothing was written. Take that declaration out first, say "
            "--print, or name another dataset with --as."
        )


def _of_project(dataset: str) -> str | None:
    """The text of the file where another project over the same catalog owns the dataset; else None."""
    from varve.cli.files.of_project import text_of_dataset

    project = chosen_project().sensor_settings.project_name
    return text_of_dataset(chosen_settings(), dataset, project)


def _write(console: Console, dataset: str, text: str, what: str, comments: str = "", *, only_print: bool) -> bool:
    """Write the file, laid out, or print it; returns whether it was written. Raises VarveError where it is there."""
    folder = chosen_project().assets
    file = folder / f"{dataset.replace('.', '_')}.sql"
    # As it will lie there: the calendars that it names lie beside it, or in a folder above.
    shown, root = str(file.relative_to(folder.parent)), str(folder.parent)
    text = formatted(SourceFile(shown, text, root))
    # What cannot be loaded is not written.
    compiled([SourceFile(shown, text, root)], {})
    text = comments + text
    if only_print:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return False
    if file.exists():
        raise VarveError(f"{file} is there already. Nothing was written. Remove it first, or say --print.")
    file.write_text(text, encoding="utf-8")
    console.print(f"{what} {file}.", markup=False, highlight=False, soft_wrap=True)
    return True


def existing_table(table: str, *, copies: bool) -> tuple[ExistingTable, list[str]]:
    """The table as the metastore has it, and the columns that no dataset can have, with the reason."""
    from pyspark.errors import AnalysisException

    spark = open_session(chosen_settings())
    quoted = ".".join(f"`{part}`" for part in table.split("."))
    try:
        described = [(str(row[0]), str(row[1])) for row in spark.sql(f"DESCRIBE EXTENDED {quoted}").collect()]
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise VarveError(f"{table}: it cannot be read: {reason} Nothing was written.") from error
    values = dict(described)
    is_parquet = "parquet" in f"{values.get('Provider', '')} {values.get('Serde Library', '')}".lower()
    if not copies and not is_parquet:
        there, own = values.get("Provider", "another format"), f"lake.{table.partition('.')[2].lower()}"
        raise VarveError(
            f"{table} has files of {there}, and EXTERNAL VIEW reads parquet. Nothing was written. Copy it: "
            f"varve import {table} --copy --as {own}."
        )
    names = [column.name for column in spark.catalog.listColumns(quoted) if column.isPartition]
    columns, left_out = [], []
    for field in spark.table(quoted).schema.fields:
        column = TableColumn(field.name, field.dataType.simpleString().upper(), _comment(field))
        try:
            ColumnType(column.type)
        except VarveError:
            left_out.append(f"{column.name}, of type {column.type}")
            continue
        columns.append(column)
    partitions = [_values(row[0]) for row in spark.sql(f"SHOW PARTITIONS {quoted}").collect()] if names else []
    if nulls := [values for values in partitions if _NULL in values.values()]:
        left_out.append(f"{len(nulls)} partitions with a NULL, which no dataset has ({some(map(str, nulls), limit=1)})")
    return ExistingTable(
        table,
        [column for column in columns if column.name not in names],
        [next(column for column in columns if column.name == name) for name in names],
        [values for values in partitions if values not in nulls],
    ), left_out


def _values(path: str) -> Mapping[str, str]:
    return dict(parse_path(path))


def _comment(field: Any) -> str:
    return str(field.metadata.get("comment", ""))


def _tell(console: Console, left_out: list[str]) -> None:
    for reason in left_out:
        console.print(f"  left out: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print("Look at its FOR, then: varve check", markup=False, highlight=False)
