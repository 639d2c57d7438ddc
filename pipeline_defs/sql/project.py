"""All SQL files of a folder as the datasets of a project, checked together; every problem of every file at once.

Nothing is started and nothing is imported: a code location loads through here.

Not here: what is wrong with one file (problems.py), Dagster (pipeline_defs/sql_assets.py) and Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from pipeline_defs.sql.asset import Kept, SqlAsset, kept_of
from pipeline_defs.sql.body import reads_of, span_of, tables_of
from pipeline_defs.sql.cache import Cache, key_of
from pipeline_defs.sql.comprehension import scopes_of
from pipeline_defs.sql.declared import dataset_of
from pipeline_defs.sql.errors import Source, SqlErrors, nearest
from pipeline_defs.sql.header import parse
from pipeline_defs.sql.planned import inference
from pipeline_defs.sql.problems import plan_problems, query_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pipeline_defs.model.dataset import Dataset
    from pipeline_defs.sql.dependencies import Dependencies
    from pipeline_defs.sql.errors import Problem
    from pipeline_defs.sql.planned import Inference
    from pipeline_defs.sql.source import SqlDataset


def load(
    folder: Path, others: Callable[[], Mapping[str, Dataset]] | None = None, cache: Cache | None = None
) -> dict[str, SqlAsset]:
    """The datasets of all `.sql` files in a folder, each after those it reads.

    `others` gives the datasets that are declared in Python; it is asked only where a file reads one. What was
    understood before of files that have not changed is taken from the folder's cache, or `cache`. Raises SqlErrors with
    everything that is wrong.
    """
    kept = Cache.beside(folder) if cache is None else cache
    try:
        return compiled(sources_of(folder), others or dict, kept)
    finally:
        if kept.misses:
            kept.write(folder)


def sources_of(folder: Path) -> list[Source]:
    """The SQL files of a folder."""
    found = sorted(folder.rglob("*.sql"))
    return [Source(str(path.relative_to(folder.parent)), path.read_text(encoding="utf-8")) for path in found]


def compiled(
    sources: Iterable[Source],
    others: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    cache: Cache | None = None,
) -> dict[str, SqlAsset]:
    """The datasets of these files. See `load`."""
    kept = Cache() if cache is None else cache
    problems: list[Problem] = []
    drafts, whole = _drafts(sources, kept, problems)
    kept.keep_only(draft.source.path for draft in drafts.values())
    known = _others(drafts, others)
    problems += _misnamed(drafts, known, whole=whole)
    assets: dict[str, SqlAsset] = {}
    for name in _in_order(drafts, problems):
        draft = drafts[name]
        upstreams = {each: known[each] for each in draft.reads if each in known}
        key = key_of(draft.source, upstreams, draft.entry)
        found = draft.kept if len(upstreams) == len(draft.reads) and kept.key_of(draft.source) == key else None
        if found is not None:
            kept.hits += 1
        else:
            kept.misses += 1
            found = _understood(draft, known, upstreams, problems)
        if found is None:
            continue
        kept.keep(draft.source, key, found)
        known |= _with_rejected(found.dataset)
        assets[name] = SqlAsset(draft.source, found, upstreams)
    if problems:
        raise SqlErrors(problems)
    return assets


@dataclass(frozen=True)
class _Draft:
    """A file before anything but its own text is known.

    Attributes:
        kept: what was understood of this text when what it reads was as it was then.
    """

    source: Source
    kept: Kept | None
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
        return self.kept.reads if self.kept else reads_of(self.sql)

    @property
    def rejected(self) -> str:
        """The dataset of its rejected rows; "" where it has none."""
        into = self.kept.dataset.reject_into if self.kept else self.sql.reject_into
        return "" if into is None else into.dataset

    @property
    def entry(self) -> str:
        """The foreign function that it names."""
        return self.kept.entry if self.kept else self.sql.entry


def _understood(
    draft: _Draft, known: dict[str, Dataset], upstreams: Mapping[str, Dataset], problems: list[Problem]
) -> Kept | None:
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
        found = () if queries.findings else queries.dependencies(upstreams)
        problems += [] if against else plan_problems(sql, queries, found)
    try:
        known |= _with_rejected(dataset_of(sql, scopes, queries))
    except SqlErrors as error:
        problems += error.problems
        return None
    if queries is None or len(problems) > before:
        return None
    return kept_of(sql, scopes, known[sql.name], queries, found, upstreams)


def _with_rejected(dataset: Dataset) -> dict[str, Dataset]:
    """A dataset by its name, and that of its rejected rows, where it has one."""
    rejected = dataset.rejected_dataset()
    return {each.name: each for each in (dataset, rejected) if each is not None}


def _drafts(sources: Iterable[Source], cache: Cache, problems: list[Problem]) -> tuple[dict[str, _Draft], bool]:
    """The files by the name of their dataset, and whether all can be read; what is wrong is added to `problems`."""
    drafts: dict[str, _Draft] = {}
    whole = True
    for source in sources:
        kept = cache.of(source)
        try:
            found = _Draft(source, kept, None if kept else parse(source))
        except SqlErrors as error:
            problems += error.problems
            whole = False
            continue
        if other := drafts.get(found.name):
            at = found.sql
            problems.append(at.problem(at.name_span, f"{at.name} is also declared in {other.source.path}."))
        else:
            drafts[found.name] = found
    return drafts, whole


def _others(
    drafts: Mapping[str, _Draft], others: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]]
) -> dict[str, Dataset]:
    """The datasets of Python, where a file reads one that no file declares: to know them, Python has to be imported."""
    if not callable(others):
        return dict(others)
    declared = {*drafts, *(draft.rejected for draft in drafts.values())}
    return dict(others()) if any(name not in declared for draft in drafts.values() for name in draft.reads) else {}


def _misnamed(drafts: Mapping[str, _Draft], others: Mapping[str, Dataset], *, whole: bool) -> Iterator[Problem]:
    """Datasets that Python declares too, and names that nobody declares."""
    makers: dict[str, str] = dict.fromkeys(others, "Python") | {
        name: draft.source.path for name, draft in drafts.items()
    }
    for found in drafts.values():
        if found.rejected in makers:
            told = f"{found.rejected} is also declared in {makers[found.rejected]}; nobody else may declare it."
            yield found.sql.problem(found.sql.span_of("REJECT INTO"), told)
        elif found.rejected:
            makers[found.rejected] = found.source.path
    known = list(makers)
    for found in drafts.values():
        if found.name in others:
            yield found.sql.problem(found.sql.name_span, f"{found.name} is also declared in Python.")
        # A file that cannot be read declares something too: what reads it is not blamed.
        if whole and not set(found.reads) <= set(known):
            yield from _unknown(found.sql, known)


def _names(dataset: Dataset) -> tuple[str, ...]:
    return (*dataset.schema.names, *dataset.partitioning.names)


def _unknown(sql: SqlDataset, known: Sequence[str]) -> Iterator[Problem]:
    for query in sql.queries:
        for table in tables_of(query):
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
    makers = {each.rejected: name for name, each in drafts.items() if each.rejected} | {name: name for name in drafts}
    graph = {name: [makers[read] for read in draft.reads if read in makers] for name, draft in drafts.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        path = error.args[1]
        sql = drafts[path[0]].sql
        problems.append(
            sql.problem(sql.name_span, f"datasets read each other in a circle: {' <- '.join(path)}; one must not.")
        )
        # Nothing is made of them, but whatever else is wrong in them is told too.
        return list(drafts)
