"""What `varve check` asks Spark: the types of columns, what functions give for partitions, and what its analyzer finds.

Not here: the questions (varve/sql/answers.py, varve/sql/partitions/value_questions.py), and what is printed (sql.py).
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING

from varve.cli.context import chosen_settings
from varve.dagster.assets.sql_folders import usable
from varve.sql.spark.values import answers_by_spark
from varve.sql.syntax.errors import Problem, SqlErrors
from varve.sql.values import FILE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from rich.console import Console

    from varve.sql.cache import Cache
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.partitions.value_questions import ValueQuestion
    from varve.sql.sql_asset import SqlAsset
    from varve.sql.values import Answer


def ask_columns(folder: Path, files: SqlFiles, cache: Cache) -> SqlFiles:
    """Return the files with the column types that only Spark knows; Spark's answers are kept for the next time.

    With an answer, the files that read a dataset can be typed, and may raise questions of their own: Spark is asked
    until there is no question left. Raises SqlErrors with what Spark objects to and with the problems of other files.
    """
    if files.questions:
        from varve.services.spark import open_session
        from varve.sql.spark.analysis import columns_by_spark

        session = open_session(chosen_settings())
    while files.questions:
        problems: list[Problem] = []
        for question, _ in files.questions:
            answer = columns_by_spark(session, question)
            if isinstance(answer, Problem):
                problems.append(answer)
            else:
                files.answers.keep(question, answer)
        files.answers.write(folder)
        if problems:
            unasked = {problem for _, problem in files.questions}
            raise SqlErrors(
                [*problems, *(other_problem for other_problem in files.problems if other_problem not in unasked)]
            )
        files = usable(folder, cache)
    return files


def ask_spark(folder: Path, files: Mapping[str, SqlAsset], cache: Cache) -> None:
    """Have Spark's analyzer check, in one session, the files that have changed since it checked them last.

    Without such a file no Spark is started. Raises SqlErrors with what Spark objects to.
    """
    keys = {asset.source.path: cache.key_of(asset.source) for asset in files.values()}
    unverified = [asset for asset in files.values() if cache.verified.get(asset.source.path) != keys[asset.source.path]]
    if not unverified:
        return
    from varve.services.spark import open_session
    from varve.sql.spark.analysis import analysis_problems

    session = open_session(chosen_settings())
    problems: list[Problem] = []
    for asset in unverified:
        asset_problems = analysis_problems(session, asset)
        problems += asset_problems
        key = keys[asset.source.path]
        if not asset_problems and key is not None:
            cache.verified[asset.source.path] = key
    cache.write(folder)
    if problems:
        raise SqlErrors(problems)


def ask_values(console: Console | None, folder: Path, files: SqlFiles, cache: Cache) -> SqlFiles:
    """Return the files with what functions of their conditions give, which only Spark can evaluate; answers are kept.

    A condition whose function Spark does not answer restricts nothing, as before; `console` is told why.
    """
    changed = False
    for name, question in files.value_questions.items():
        sql = question.parsed()
        answers, before = files.value_answers.of(sql), files.value_answers.entries.get(name)
        answered = answers_by_spark(question, answers, partial(_session_of, question), dt.datetime.now(dt.UTC))
        files.value_answers.keep(sql, answered.values())
        for call, answer in answered.items():
            if answers.get(call) is not answer:
                _tell(console, name, answer)
        changed = changed or files.value_answers.entries.get(name) != before
    if not changed:
        return files
    files.value_answers.write(folder)
    return usable(folder, cache)


def _session_of(question: ValueQuestion) -> SparkSession:
    """A session that has the project's functions that a file calls."""
    from varve.dagster.assets.sql_functions import register_functions
    from varve.services.spark import open_session

    session = open_session(chosen_settings())
    register_functions(session, question.parsed())
    return session


def _tell(console: Console | None, name: str, answer: Answer) -> None:
    if console is None:
        return
    written = answer.call.format(*["..."] * len(answer.types))
    if answer.gives:
        message = f"Spark was asked for {written} of {len(answer.values):,} values, for {name}; kept in {FILE}."
    else:
        message = f"{written} restricts nothing that {name} reads: {answer.why}."
    console.print(message, highlight=False, markup=False, soft_wrap=True)
