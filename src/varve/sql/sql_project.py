"""Loads all SQL files of a folder as the datasets of a project, and reports every problem of every file at once.

It starts no process and imports no user code: a Dagster code location loads through this module.

Not here: parsing the files (files/drafts.py), the problems of one (checks/problems.py), Dagster
(varve/dagster/assets/sql_assets.py) and Spark.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from varve.sql.answers import Answers, question_of, unanswered_problem, with_answered_types
from varve.sql.cache import Cache, key_of
from varve.sql.checks.functions import function_problems
from varve.sql.checks.problems import plan_problems, query_problems
from varve.sql.checks.sets import set_problems
from varve.sql.code.functions import declared_functions
from varve.sql.code.own_files import files_of
from varve.sql.declaration import dataset_of
from varve.sql.files.drafts import in_order, name_problems, parsed_files, python_datasets_read
from varve.sql.files.sql_files import SqlFiles, broken_datasets, rejected_in
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import inference
from varve.sql.partitions.value_questions import ValueQuestion, calls_of, dependencies_asked, may_ask
from varve.sql.sql_asset import CompiledDataset, SqlAsset, compile_dataset
from varve.sql.syntax.errors import SourceFile, SqlErrors, defect_in, source_of
from varve.sql.values import ValueAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from varve.model.dataset import Dataset
    from varve.planning.mapping.dimension_mapping import DimensionMapping
    from varve.sql.answers import Question
    from varve.sql.evaluate.asked import TypedCall
    from varve.sql.files.drafts import Draft
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset
    from varve.sql.values import Answer

# Trees are made of many small objects. By default, Python looks through them after every 700 new ones.
_COLLECT_AFTER = 10_000


def load(
    folder: Path, python_datasets: Callable[[], Mapping[str, Dataset]] | None = None, cache: Cache | None = None
) -> SqlFiles:
    """Load the datasets of all `.sql` files in a folder, each after those that it reads.

    `python_datasets` returns the datasets that are declared in Python; it is called only where a file reads one. The
    compiled form of files that have not changed is taken from the folder's cache, or from `cache`. Raises SqlErrors
    with all problems.
    """
    return load_usable(folder, python_datasets, cache).checked()


def load_usable(
    folder: Path, python_datasets: Callable[[], Mapping[str, Dataset]] | None = None, cache: Cache | None = None
) -> SqlFiles:
    """Load the datasets of a folder that can be used, and the reasons why others cannot; raises no SqlErrors."""
    folder_cache = Cache.beside(folder) if cache is None else cache
    try:
        with _seldom_collected():
            return usable(
                sources_of(folder),
                python_datasets or dict,
                folder_cache,
                Answers.beside(folder),
                ValueAnswers.beside(folder),
            )
    finally:
        if folder_cache.misses:
            folder_cache.write(folder)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let Python look for unused cycles less often: of a thousand files, that was a quarter of the time."""
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, _COLLECT_AFTER) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)


def sources_of(folder: Path) -> list[SourceFile]:
    """Return the SQL files of a folder, sorted by path."""
    paths, functions = files_of(folder, "**/*.sql"), declared_functions(folder)
    sources = [_read(path, folder.parent) for path in paths]
    return [replace(source, functions=functions) for source in sources] if functions else sources


def _read(path: Path, root: Path) -> SourceFile:
    """Return a file; a link that leads nowhere, say, is a file that cannot be read, and stops no other."""
    shown = str(path.relative_to(root))
    try:
        return source_of(path.read_bytes(), shown, str(root))
    except OSError as error:
        return SourceFile(shown, "", str(root), unreadable=error.strerror or type(error).__name__)


def compiled(
    sources: Iterable[SourceFile],
    python_datasets: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    cache: Cache | None = None,
) -> SqlFiles:
    """Return the datasets of these files. Raises SqlErrors with all problems. See `load`."""
    return usable(sources, python_datasets, cache).checked()


def usable(
    sources: Iterable[SourceFile],
    python_datasets: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    cache: Cache | None = None,
    answers: Answers | None = None,
    value_answers: ValueAnswers | None = None,
) -> SqlFiles:
    """Return the datasets of these files that can be used, and the reasons why others cannot. See `load_usable`."""
    used_cache = Cache() if cache is None else cache
    stored_answers = answers or Answers()
    stored_values = value_answers or ValueAnswers()
    value_questions: dict[str, ValueQuestion] = {}
    questions: list[tuple[Question, Problem]] = []
    known_mappings: dict[str, tuple[DimensionMapping, ...]] = {}
    problems: list[Problem] = []
    drafts, unread = parsed_files(sources, used_cache, problems)
    used_cache.keep_only(draft.source.path for draft in drafts.values())
    declared_names = {*drafts, *unread.values(), *(draft.rejected for draft in drafts.values() if draft.rejected)}
    declared_names |= {name for source in unread if (name := rejected_in(source))}
    datasets = python_datasets_read(drafts, python_datasets, declared_names)
    undeclared = {
        name for draft in drafts.values() for name in draft.reads if name not in declared_names and name not in datasets
    }
    problems += name_problems(drafts, datasets, unread)
    assets: dict[str, SqlAsset] = {}
    order = in_order(drafts, problems)
    for name in order:
        draft = drafts[name]
        upstreams = {
            upstream_name: datasets[upstream_name] for upstream_name in draft.reads if upstream_name in datasets
        }
        answered = stored_answers.entries.get(name), stored_values.entries.get(name)
        key = key_of(draft.source, upstreams, draft.entry, answered)
        compiled_dataset = (
            draft.compiled if len(upstreams) == len(draft.reads) and used_cache.key_of(draft.source) == key else None
        )
        if compiled_dataset is not None:
            used_cache.hits += 1
        else:
            used_cache.misses += 1
            spark = _Spark(stored_answers, stored_values, questions, value_questions)
            try:
                compiled_dataset = _compile(draft, datasets, upstreams, problems, spark, known_mappings)
            except Exception as error:  # noqa: BLE001 - of whatever kind: it is no fault of the other datasets
                problems.append(defect_in(draft.source, draft.sql.name_span, error))
                compiled_dataset = None
        if compiled_dataset is not None and compiled_dataset.asks:
            value_questions[name] = ValueQuestion(partial(_parsed_of, draft), upstreams)
        if compiled_dataset is None:
            continue
        used_cache.keep(draft.source, key, compiled_dataset)
        datasets |= _with_rejected(compiled_dataset.dataset)
        assets[name] = SqlAsset(draft.source, compiled_dataset, upstreams)
    problems += set_problems(drafts, datasets, declared_names)
    broken = broken_datasets([drafts[name] for name in order], unread, problems, datasets, assets)
    unusable = {broken_dataset.name for broken_dataset in broken}
    return SqlFiles(
        {name: asset for name, asset in assets.items() if name not in unusable},
        problems, broken, sorted(undeclared), questions, stored_answers, value_questions, stored_values,
    )  # fmt: skip


@dataclass(frozen=True)
class _Spark:
    """What Spark has said, and what it is to be asked."""

    answers: Answers
    value_answers: ValueAnswers
    questions: list[tuple[Question, Problem]]
    value_questions: dict[str, ValueQuestion]


def _parsed_of(draft: Draft) -> SqlDataset:
    return draft.sql


def _compile(  # noqa: PLR0917
    draft: Draft,
    datasets: dict[str, Dataset],
    upstreams: Mapping[str, Dataset],
    problems: list[Problem],
    spark: _Spark,
    known_mappings: dict[str, tuple[DimensionMapping, ...]],
) -> CompiledDataset | None:
    """Compile a file; return None, and add to `problems`, where something is wrong with it.

    Where its columns are certain all the same, its dataset is added to `datasets`, so that its readers are checked.
    """
    sql, before = draft.sql, len(problems)
    own_problems = list(query_problems(sql, {name: _column_names(upstream) for name, upstream in upstreams.items()}))
    own_problems += function_problems(sql)
    problems += own_problems
    try:
        scopes = scopes_of(sql)
    except SqlErrors as error:
        problems += error.problems
        return None
    queries: Inference | None = None
    dependencies: tuple[Dependencies, ...] = ()
    answered: dict[TypedCall, Answer] = {}
    calls: set[str] = set()
    if len(upstreams) == len(draft.reads):
        queries = inference(sql, scopes, upstreams)
        question = question_of(sql, scopes, upstreams, queries)
        if question is not None and (columns := spark.answers.of(question)) is not None:
            (inferred,) = queries.queries
            queries = replace(
                queries, queries=(replace(inferred, outputs=with_answered_types(inferred.outputs, columns)),)
            )
        elif question is not None:
            # Other problems of the file may be the reason: Spark is asked when they are fixed.
            if not own_problems:
                spark.questions.append((question, unanswered_problem(question)))
                problems.append(spark.questions[-1][1])
            problems += [] if own_problems else plan_problems(sql, queries, queries.dependencies(upstreams))
            return None
        if not queries.findings:
            if may_ask(sql, queries):
                calls = calls_of(dependencies_asked(sql, queries.dependencies, upstreams))
            answered = spark.value_answers.of(sql) if calls else {}
            useful = {answer.call for answer in answered.values() if answer.gives}
            dependencies = dependencies_asked(sql, queries.dependencies, upstreams, lambda call: call in useful)
            if calls:
                spark.value_questions[sql.name] = ValueQuestion(partial(_parsed_of, draft), upstreams)
        unanswered = calls - {call for call, _ in answered}
        problems += [] if own_problems else plan_problems(sql, queries, dependencies, unanswered)
    elif not sql.columns:
        # Its columns follow from those of a dataset that cannot be used: they are unknown, which is no problem of this
        # file.
        return None
    try:
        dataset = dataset_of(sql, scopes, queries, upstreams)
    except SqlErrors as error:
        problems += error.problems
        return None
    if sql.columns or len(problems) == before:
        datasets |= _with_rejected(dataset)
    if queries is None or len(problems) > before:
        return None
    return compile_dataset(
        sql, scopes, dataset, queries, dependencies, upstreams, known_mappings, answered, asks=bool(calls)
    )


def _with_rejected(dataset: Dataset) -> dict[str, Dataset]:
    """Return a dataset by its name, together with that of its rejected rows, where it has one."""
    rejected = dataset.rejected_dataset()
    return {
        declared_dataset.name: declared_dataset
        for declared_dataset in (dataset, rejected)
        if declared_dataset is not None
    }


def _column_names(dataset: Dataset) -> tuple[str, ...]:
    return (*dataset.schema.names, *dataset.partitioning.names)
