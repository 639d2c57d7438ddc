"""All SQL files of a folder as the datasets of a project, checked together; every problem of every file at once.

Nothing is started and nothing is imported: a code location loads through here.

Not here: what is wrong with one file (checks/problems.py), Dagster (varve/dagster/assets/sql_assets.py) and Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.sql.answers import Answers, answered, question_of, unanswered
from varve.sql.cache import Cache, key_of
from varve.sql.checks.problems import plan_problems, query_problems
from varve.sql.declaration import dataset_of
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.partitions.dependencies import inference
from varve.sql.sql_asset import CompiledDataset, SqlAsset, kept_of
from varve.sql.sql_files import SqlFiles, broken_datasets, rejected_in
from varve.sql.syntax.body import reads_of, span_of, tables_of
from varve.sql.syntax.errors import SourceFile, SqlErrors, source_of
from varve.sql.syntax.header import declared_name, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from varve.model.dataset import Dataset
    from varve.sql.answers import Question
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.pushdown.scans import Dependencies
    from varve.sql.syntax.errors import Problem, Span
    from varve.sql.syntax.sql_file import SqlDataset


def load(
    folder: Path, others: Callable[[], Mapping[str, Dataset]] | None = None, cache: Cache | None = None
) -> SqlFiles:
    """The datasets of all `.sql` files in a folder, each after those it reads.

    `others` gives the datasets that are declared in Python; it is asked only where a file reads one. What was
    understood before of files that have not changed is taken from the folder's cache, or `cache`. Raises SqlErrors with
    everything that is wrong.
    """
    return load_usable(folder, others, cache).checked()


def load_usable(
    folder: Path, others: Callable[[], Mapping[str, Dataset]] | None = None, cache: Cache | None = None
) -> SqlFiles:
    """The same without an error: those datasets of the folder that can be used, and which cannot, with the reason."""
    kept = Cache.beside(folder) if cache is None else cache
    try:
        return usable(sources_of(folder), others or dict, kept, Answers.beside(folder))
    finally:
        if kept.misses:
            kept.write(folder)


def sources_of(folder: Path) -> list[SourceFile]:
    """The SQL files of a folder."""
    found = sorted(folder.rglob("*.sql"))
    return [source_of(path.read_bytes(), str(path.relative_to(folder.parent)), str(folder.parent)) for path in found]


def compiled(
    sources: Iterable[SourceFile],
    others: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    cache: Cache | None = None,
) -> SqlFiles:
    """The datasets of these files. Raises SqlErrors with everything that is wrong. See `load`."""
    return usable(sources, others, cache).checked()


def usable(
    sources: Iterable[SourceFile],
    others: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    cache: Cache | None = None,
    answers: Answers | None = None,
) -> SqlFiles:
    """Those datasets of these files that can be used, and which cannot. See `load_usable`."""
    kept = Cache() if cache is None else cache
    asked = answers or Answers()
    questions: list[tuple[Question, Problem]] = []
    problems: list[Problem] = []
    drafts, unread = _drafts(sources, kept, problems)
    kept.keep_only(draft.source.path for draft in drafts.values())
    declared_names = {*drafts, *unread.values(), *(draft.rejected for draft in drafts.values() if draft.rejected)}
    declared_names |= {name for source in unread if (name := rejected_in(source))}
    known = _others(drafts, others, declared_names)
    undeclared = {
        name for draft in drafts.values() for name in draft.reads if name not in declared_names and name not in known
    }
    problems += _misnamed(drafts, known, unread)
    assets: dict[str, SqlAsset] = {}
    order = _in_order(drafts, problems)
    for name in order:
        draft = drafts[name]
        upstreams = {each: known[each] for each in draft.reads if each in known}
        key = key_of(draft.source, upstreams, draft.entry, asked.entries.get(name))
        found = draft.kept if len(upstreams) == len(draft.reads) and kept.key_of(draft.source) == key else None
        if found is not None:
            kept.hits += 1
        else:
            kept.misses += 1
            found = _understood(draft, known, upstreams, problems, asked, questions)
        if found is None:
            continue
        kept.keep(draft.source, key, found)
        known |= _with_rejected(found.dataset)
        assets[name] = SqlAsset(draft.source, found, upstreams)
    broken = broken_datasets([drafts[name] for name in order], unread, problems, known, assets)
    unusable = {each.name for each in broken}
    return SqlFiles(
        {name: each for name, each in assets.items() if name not in unusable},
        problems, broken, sorted(undeclared), questions, asked,
    )  # fmt: skip


@dataclass(frozen=True)
class _Draft:
    """A file before anything but its own text is known.

    Attributes:
        kept: what was understood of this text when what it reads was as it was then.
    """

    source: SourceFile
    kept: CompiledDataset | None
    parsed: SqlDataset | None

    @cached_property
    def sql(self) -> SqlDataset:
        """What it declares."""
        return self.parsed or parse(self.source)

    @property
    def name(self) -> str:
        """The dataset that it declares."""
        return self.kept.dataset.name if self.kept else self.sql.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets that it reads."""
        return self.kept.reads if self.kept else reads_of(self.sql.queries)

    @property
    def rejected(self) -> str:
        """The dataset of its rejected rows; "" where it has none."""
        into = self.kept.dataset.reject_into if self.kept else self.sql.reject_into
        return "" if into is None else into.dataset

    @property
    def entry(self) -> str:
        """The foreign function that it names."""
        return self.kept.entry if self.kept else self.sql.entry


def _understood(  # noqa: PLR0917
    draft: _Draft,
    known: dict[str, Dataset],
    upstreams: Mapping[str, Dataset],
    problems: list[Problem],
    answers: Answers,
    questions: list[tuple[Question, Problem]],
) -> CompiledDataset | None:
    """What a file is; None, and `problems`, where something is wrong with it. Its readers are judged all the same."""
    sql, before = draft.sql, len(problems)
    against = list(query_problems(sql, {each.name: _names(each) for each in known.values()}))
    problems += against
    try:
        scopes = scopes_of(sql)
    except SqlErrors as error:
        problems += error.problems
        return None
    queries: Inference | None = None
    found: tuple[Dependencies, ...] = ()
    if len(upstreams) == len(draft.reads):
        queries = inference(sql, scopes, upstreams)
        question = question_of(sql, scopes, upstreams, queries)
        if question is not None and (columns := answers.of(question)) is not None:
            (inferred,) = queries.queries
            queries = replace(queries, queries=(replace(inferred, outputs=answered(inferred.outputs, columns)),))
        elif question is not None:
            # What else is wrong in the file may be why: Spark is asked when that is mended.
            if not against:
                questions.append((question, unanswered(question)))
                problems.append(questions[-1][1])
            problems += [] if against else plan_problems(sql, queries, queries.dependencies(upstreams))
            return None
        found = () if queries.findings else queries.dependencies(upstreams)
        problems += [] if against else plan_problems(sql, queries, found)
    elif not sql.columns:
        # Its columns follow from those of a dataset that cannot be used: nobody can tell them, and it is not to blame.
        return None
    try:
        dataset = dataset_of(sql, scopes, queries)
    except SqlErrors as error:
        problems += error.problems
        return None
    if sql.columns or len(problems) == before:
        known |= _with_rejected(dataset)
    if queries is None or len(problems) > before:
        return None
    return kept_of(sql, scopes, dataset, queries, found, upstreams)


def _with_rejected(dataset: Dataset) -> dict[str, Dataset]:
    """A dataset by its name, and that of its rejected rows, where it has one."""
    rejected = dataset.rejected_dataset()
    return {each.name: each for each in (dataset, rejected) if each is not None}


def _drafts(
    sources: Iterable[SourceFile], cache: Cache, problems: list[Problem]
) -> tuple[dict[str, _Draft], dict[SourceFile, str]]:
    """The files by the name of their dataset; and those that cannot be used at all, with the name that they declare.

    That name is empty where the file does not tell it. What is wrong is added to `problems`.
    """
    drafts: dict[str, _Draft] = {}
    unread: dict[SourceFile, str] = {}
    for source in sources:
        kept = cache.of(source)
        try:
            found = _Draft(source, kept, None if kept else parse(source))
        except SqlErrors as error:
            problems += error.problems
            unread[source] = declared_name(source)
            continue
        if other := drafts.get(found.name):
            at = found.sql
            problems.append(at.problem(at.name_span, f"{at.name} is also declared in {other.source.path}."))
            unread[source] = found.name
        else:
            drafts[found.name] = found
    return drafts, unread


def _others(
    drafts: Mapping[str, _Draft],
    others: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    declared_names: Collection[str],
) -> dict[str, Dataset]:
    """The datasets of Python, where a file reads one that no file declares: to know them, Python has to be imported."""
    if not callable(others):
        return dict(others)
    wanted = any(name not in declared_names for draft in drafts.values() for name in draft.reads)
    return dict(others()) if wanted else {}


def _misnamed(
    drafts: Mapping[str, _Draft], others: Mapping[str, Dataset], unread: Mapping[SourceFile, str]
) -> Iterator[Problem]:
    """Datasets that Python declares too, and names that nobody declares."""
    makers: dict[str, str] = dict.fromkeys(others, "Python")
    makers |= {name: source.path for source, name in unread.items()}
    makers |= {name: source.path for source in unread if (name := rejected_in(source))}
    makers |= {name: draft.source.path for name, draft in drafts.items()}
    for found in drafts.values():
        if found.rejected and found.rejected in makers:
            told = f"{found.rejected} is also declared in {makers[found.rejected]}; nobody else may declare it."
            yield found.sql.problem(found.sql.span_of("REJECT INTO"), told)
        elif found.rejected:
            makers[found.rejected] = found.source.path
    for found in drafts.values():
        if found.name in others:
            yield found.sql.problem(found.sql.name_span, f"{found.name} is also declared in Python.")
        # A file that does not tell its name declares something too: what reads it is not blamed.
        if "" not in makers and not set(found.reads) <= set(makers):
            yield from _unknown(found.sql, sorted(makers))


def _names(dataset: Dataset) -> tuple[str, ...]:
    return (*dataset.schema.names, *dataset.partitioning.names)


def _unknown(sql: SqlDataset, known: Sequence[str]) -> Iterator[Problem]:
    for query in sql.queries:
        for table in tables_of(query):
            if not table.db and "." in table.name:
                # In one pair of backticks: checks/habits.py says so.
                continue
            name = f"{table.db}.{table.name}".lower()
            if not table.db:
                tables = {each.partition(".")[2]: each for each in known}
                wanted = tables.get(table.name.lower())
                hint = f" Did you mean {wanted}?" if wanted else nearest(table.name, known)
                yield sql.problem(sql.span_at(table), f"{table.name} has no database; name it db.table.{hint}")
            elif name not in known:
                yield sql.problem(
                    span_of(table.this) or sql.span_at(table), f"nobody declares {name}.{nearest(name, known)}"
                )


def _in_order(drafts: Mapping[str, _Draft], problems: list[Problem]) -> list[str]:
    """The names, each after those it reads; what reads itself in a circle comes first, and is a problem."""
    makers = {each.rejected: name for name, each in drafts.items() if each.rejected} | {name: name for name in drafts}
    graph = {name: [makers[read] for read in draft.reads if read in makers] for name, draft in drafts.items()}
    circular: list[str] = []
    while True:
        try:
            return [*circular, *TopologicalSorter(graph).static_order()]
        except CycleError as error:
            path = error.args[1]
            sql = drafts[path[0]].sql
            problems.append(sql.problem(_read_at(sql, path), _circle(path)))
            # Nothing is made of them, but whatever else is wrong in them is told too.
            circular += [name for name in dict.fromkeys(path) if name in graph]
            graph = {
                name: [read for read in reads if read not in circular]
                for name, reads in graph.items()
                if name not in circular
            }


def _circle(path: Sequence[str]) -> str:
    if len(set(path)) == 1:
        return f"in a circle: {path[0]} reads itself; name another dataset."
    return f"datasets read each other in a circle: {' <- '.join(path)}; one must not."


def _read_at(sql: SqlDataset, path: Sequence[str]) -> Span:
    """Where a file names a dataset of a circle that it is in."""
    for query in sql.queries:
        for table in tables_of(query):
            if f"{table.db}.{table.name}".lower() in path and (span := span_of(table)) is not None:
                return span
    return sql.name_span
