"""The SQL files of a project in tests: compiled as the project compiles them, their queries run on given rows.

Not here: the commands `varve check` and `varve fmt` (varve/cli/files/sql.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from varve.dagster.assets.python_files import python_assets
from varve.dagster.assets.sql_folders import python_datasets
from varve.dagster.assets.sql_rows import broken_expectations, computed, narrowed, row_error, watched
from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import BadInput, VarveError, VerifyFailed, nearest, some
from varve.project import NoProject, Project
from varve.sql import sql_project
from varve.sql.answers import Answers
from varve.sql.cache import Cache
from varve.sql.code.own_files import files_of
from varve.sql.spark.analysis import analysis_problems, columns_by_spark
from varve.sql.syntax.errors import Problem, SqlErrors
from varve.sql.syntax.sql_file import Body
from varve.sql.values import ValueAnswers
from varve.stores.frames import observed_by, spark_errors
from varve.testing.partitions import partition_keys
from varve.testing.rows import as_written, frame_of, rows_of_frame
from varve.testing.session import in_zone_of_runs, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.partitions.key import PartitionKey
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.sql_asset import SqlAsset
    from varve.testing.partitions import Partition
    from varve.testing.rows import Rows


def run_sql(
    source: Project | str | Path,
    dataset: str,
    *,
    partition: Partition | Sequence[Partition],
    inputs: Mapping[str, Rows] | None = None,
    spark: SparkSession | None = None,
) -> list[dict[str, Any]]:
    """The rows that a run of a SQL dataset would publish, made from the rows that are given.

    Everything is as in a run but for the stores: the file is compiled with the project, the query sees the partitions
    and columns that it would be given, many partitions are computed in one job, the rows are cast to the declared
    columns, and a row that breaks an EXPECT fails it. The partition columns come last; the rows are sorted by them,
    then by the other columns.

    Args:
        source: the project, its folder, a folder of `.sql` files, or one such file.
        dataset: its name, `db.table`.
        partition: `{"day": "2026-11-01"}`, or a list of them: the partitions of one run.
        inputs: for each dataset that it reads its rows: dicts (a column that is left out is NULL), or a DataFrame of
            Spark or pandas. Those of other partitions than the run reads are left out, as in a run.
        spark: the session; by default `spark_session()`.

    Raises DatasetIsBroken where the file is wrong, VarveError for what does not fit the declarations, VerifyFailed for
    rows that break an expectation.
    """
    session = in_zone_of_runs(spark) if spark else spark_session()
    folder = _folder(source)
    sql_asset = _dataset(compiled(folder, lambda: session), dataset, folder)
    keys = partition_keys(sql_asset.dataset, partition)
    frames = _inputs(session, sql_asset, keys, inputs or {})
    frame, observation = watched(sql_asset, computed(sql_asset, session, keys, frames))
    try:
        rows = rows_of_frame(as_written(sql_asset.dataset, keys, frame), sql_asset.dataset.partitioning.names)
    except spark_errors() as error:
        if text := row_error(sql_asset, keys, error):
            raise BadInput(f"{sql_asset.dataset}: {text} A run would publish nothing.") from error
        raise
    if observation is not None and (broken := broken_expectations(sql_asset, observed_by(observation))):
        raise VerifyFailed(f"{sql_asset.dataset}: {broken}. A run would publish nothing.")
    return rows


def check(source: Project | str | Path | None = None, *, spark: SparkSession | None = None) -> list[str]:
    """Everything that is wrong in the SQL files of a project, each with its place; an empty list where nothing is.

    It is what `varve check` says: Spark's analyzer looks at every file, too.

    Args:
        source: the project, its folder, a folder of `.sql` files, or one such file; None for the project of the
            working directory.
        spark: the session; by default `spark_session()`.
    """
    session = in_zone_of_runs(spark) if spark else spark_session()
    try:
        files = compiled(_folder(source), lambda: session)
    except SqlErrors as error:
        return [str(problem) for problem in error.problems]
    problems = [*files.problems]
    for sql_asset in files.values():
        problems += analysis_problems(session, sql_asset)
    return [str(problem) for problem in SqlErrors(problems).problems]


def _folder(source: Project | str | Path | None) -> Path:
    """The folder of SQL files that is meant."""
    if isinstance(source, Project) or source is None:
        project = source or Project.find()
        project.importable()
        return project.assets
    place = Path(source).expanduser().resolve()
    if not place.exists():
        raise NoProject(f"{place} does not exist. Name a project, its folder, a folder of .sql files or one of them.")
    folder = place.parent if place.is_file() else place
    try:
        project = Project.find(folder)
    except NoProject as error:
        if not error.is_absent:
            raise
    else:
        if folder == project.root or folder.is_relative_to(project.assets.resolve()):
            project.importable()
            return project.assets
    if not files_of(folder, "**/*.sql"):
        raise NoProject(f"{folder} is no project's folder, and has no .sql files. Name one that is or has.")
    return folder


def compiled(folder: Path, spark: Callable[[], SparkSession]) -> SqlFiles:
    """The files of a folder; Spark is asked for the types that only it can tell. Raises SqlErrors where it refuses."""
    cache, answers, value_answers = Cache.beside(folder), Answers.beside(folder), ValueAnswers.beside(folder)
    while True:
        files = sql_project.usable(
            sql_project.sources_of(folder), lambda: python_datasets(folder), cache, answers, value_answers
        )  # fmt: skip
        if not files.questions:
            if cache.misses:
                cache.write(folder)
            return files
        refusals: list[Problem] = []
        for question, _ in files.questions:
            columns = columns_by_spark(spark(), question)
            if isinstance(columns, Problem):
                refusals.append(columns)
            else:
                answers.keep(question, columns)
        if refusals:
            unasked = {problem for _, problem in files.questions}
            raise SqlErrors([*refusals, *(problem for problem in files.problems if problem not in unasked)])


def _dataset(files: SqlFiles, name: str, folder: Path) -> SqlAsset:
    """A dataset that can be run. Raises VarveError where it cannot."""
    for broken in files.broken:
        if broken.name == name:
            raise DatasetIsBroken(broken)
    if name not in files:
        in_python = {asset.dataset.name for asset in python_assets(folder)}
        if name in in_python:
            raise VarveError(f"{name} is declared in Python: call its function, it returns its rows.")
        raise VarveError(
            f"no file of {folder} declares {name}.{nearest(name, files)} They declare "
            f"{some(sorted(files)) or 'nothing'}."
        )
    sql_asset = files[name]
    if sql_asset.sql.body is Body.EXTERNAL:
        raise VarveError(f"{name} comes from others and has no query; give its rows as inputs of what reads it.")
    if sql_asset.sql.body is Body.SPARK:
        raise VarveError(
            f"{name} is a program, {sql_asset.sql.entry}, which spark-submit runs; "
            "test the functions that it is made of."
        )
    return sql_asset


def _inputs(
    spark: SparkSession, sql_asset: SqlAsset, keys: Sequence[PartitionKey], given: Mapping[str, Rows]
) -> dict[str, DataFrame]:
    """What a run of these partitions reads of the rows."""
    for name in given:
        if name not in sql_asset.reads:
            reads = ", ".join(sql_asset.reads) or "nothing"
            raise VarveError(f"{sql_asset.dataset} does not read {name}, but {reads}.{nearest(name, sql_asset.reads)}")
    if missing := [name for name in sql_asset.reads if name not in given]:
        raise VarveError(
            f"{sql_asset.dataset} reads {', '.join(missing)}, of which no rows are given: write "
            f"inputs={{{missing[0]!r}: [...]}}, with an empty list where it has none."
        )
    frames = {}
    for name in sql_asset.reads:
        upstream = sql_asset.upstreams[name]
        columns = upstream.read_columns(sql_asset.compiled.columns[name])
        frames[name] = frame_of(spark, upstream, given[name]).select(*[f"`{column.name}`" for column in columns])
    return narrowed(sql_asset, keys, frames)
