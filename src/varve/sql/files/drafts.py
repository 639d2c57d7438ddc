"""The SQL files of a project as parsed, before any is compiled: their names, what they read, and in which order.

Not here: compiling them (sql_project.py), and what is usable in the end (sql_files.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.sql.files.sql_files import rejected_in
from varve.sql.syntax.body import reads_of, span_of, tables_of
from varve.sql.syntax.errors import Span, SqlErrors, defect_in
from varve.sql.syntax.header import parse
from varve.sql.syntax.header_text import declared_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.sql.cache import Cache
    from varve.sql.sql_asset import CompiledDataset
    from varve.sql.syntax.errors import Problem, SourceFile
    from varve.sql.syntax.sql_file import SqlDataset


@dataclass(frozen=True)
class Draft:
    """A parsed file, before the datasets that it reads are known.

    Attributes:
        compiled: the cached form of this text, which is valid if the datasets that it reads have not changed; None: not
            cached.
    """

    source: SourceFile
    compiled: CompiledDataset | None
    parsed: SqlDataset | None

    @cached_property
    def sql(self) -> SqlDataset:
        """The parsed file."""
        return self.parsed or parse(self.source)

    @property
    def name(self) -> str:
        """The name of the dataset that it declares."""
        return self.compiled.dataset.name if self.compiled else self.sql.name

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of the datasets that it reads."""
        return self.compiled.reads if self.compiled else reads_of(self.sql.queries)

    @property
    def rejected(self) -> str:
        """The name of the dataset of its rejected rows; "" where it has none."""
        into = self.compiled.dataset.reject_into if self.compiled else self.sql.reject_into
        return "" if into is None else into.dataset

    @property
    def entry(self) -> str:
        """The foreign function or program that it names."""
        return self.compiled.entry if self.compiled else self.sql.entry


def parsed_files(
    sources: Iterable[SourceFile], cache: Cache, problems: list[Problem]
) -> tuple[dict[str, Draft], dict[SourceFile, str]]:
    """Return the parsed files by dataset name, and the files that cannot be parsed with the name that they declare.

    That name is empty where the file does not tell it. Problems are added to `problems`.
    """
    drafts: dict[str, Draft] = {}
    unread: dict[SourceFile, str] = {}
    by_name: dict[str, list[Draft]] = {}
    for source in sources:
        cached = cache.of(source)
        try:
            draft = Draft(source, cached, None if cached else parse(source))
        except SqlErrors as error:
            problems += error.problems
            unread[source] = declared_name(source)
            continue
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is no fault of the other files
            problems.append(defect_in(source, Span(0, 0), error))
            unread[source] = declared_name(source)
            continue
        by_name.setdefault(draft.name, []).append(draft)
    for name, same in by_name.items():
        if len(same) == 1:
            drafts[name] = same[0]
        # Nobody can say which of them its readers mean.
        for draft in same if len(same) > 1 else ():
            others = ", ".join(other.source.path for other in same if other is not draft)
            problems.append(draft.sql.problem(draft.sql.name_span, f"{name} is also declared in {others}."))
            unread[draft.source] = name
    return drafts, unread


def python_datasets_read(
    drafts: Mapping[str, Draft],
    python_datasets: Mapping[str, Dataset] | Callable[[], Mapping[str, Dataset]],
    declared_names: Collection[str],
) -> dict[str, Dataset]:
    """Return the datasets of Python.

    Where they are given as a function, it is called only if a file reads a dataset that no file declares, because
    Python has to be imported for it.
    """
    if not callable(python_datasets):
        return dict(python_datasets)
    is_read = any(name not in declared_names for draft in drafts.values() for name in draft.reads)
    return dict(python_datasets()) if is_read else {}


def name_problems(
    drafts: Mapping[str, Draft], python_datasets: Mapping[str, Dataset], unread: Mapping[SourceFile, str]
) -> Iterator[Problem]:
    """Yield a problem for each dataset that is declared twice, and for each name that nobody declares."""
    declared_in: dict[str, str] = dict.fromkeys(python_datasets, "Python")
    declared_in |= {name: source.path for source, name in unread.items()}
    declared_in |= {name: source.path for source in unread if (name := rejected_in(source))}
    declared_in |= {name: draft.source.path for name, draft in drafts.items()}
    for draft in drafts.values():
        if draft.rejected and draft.rejected in declared_in:
            message = f"{draft.rejected} is also declared in {declared_in[draft.rejected]}; nobody else may declare it."
            yield draft.sql.problem(draft.sql.span_of("REJECT INTO"), message)
        elif draft.rejected:
            declared_in[draft.rejected] = draft.source.path
    for draft in drafts.values():
        if draft.name in python_datasets:
            yield draft.sql.problem(draft.sql.name_span, f"{draft.name} is also declared in Python.")
        # A file that does not tell its name declares something too, so names may be unknown without a fault of the
        # reader.
        if "" not in declared_in and not all(name in declared_in for name in draft.reads):
            yield from _unknown_dataset_problems(draft.sql, sorted(declared_in))


def in_order(drafts: Mapping[str, Draft], problems: list[Problem]) -> list[str]:
    """Return the names, each after those that it reads; names in a cycle come first, and are added to `problems`."""
    producers = {draft.rejected: name for name, draft in drafts.items() if draft.rejected} | {
        name: name for name in drafts
    }
    graph = {name: [producers[read] for read in draft.reads if read in producers] for name, draft in drafts.items()}
    circular: list[str] = []
    while True:
        try:
            return [*circular, *TopologicalSorter(graph).static_order()]
        except CycleError as error:
            path = error.args[1]
            sql = drafts[path[0]].sql
            problems.append(sql.problem(_cycle_span(sql, path), _cycle_message(path)))
            # They cannot be used, but their other problems are reported too.
            circular += [name for name in dict.fromkeys(path) if name in graph]
            graph = {
                name: [read for read in reads if read not in circular]
                for name, reads in graph.items()
                if name not in circular
            }


def _unknown_dataset_problems(sql: SqlDataset, declared_names: Sequence[str]) -> Iterator[Problem]:
    for query in sql.queries:
        for table in tables_of(query):
            if not table.db and "." in table.name:
                # `db.table` in one pair of backticks: checks/habits.py reports it.
                continue
            name = f"{table.db}.{table.name}".lower()
            if not table.db:
                tables = {declared_name.partition(".")[2]: declared_name for declared_name in declared_names}
                full_name = tables.get(table.name.lower())
                hint = f" Did you mean {full_name}?" if full_name else nearest(table.name, declared_names)
                yield sql.problem(sql.span_at(table), f"{table.name} has no database; name it db.table.{hint}")
            elif name not in declared_names:
                yield sql.problem(
                    span_of(table.this) or sql.span_at(table), f"nobody declares {name}.{nearest(name, declared_names)}"
                )


def _cycle_message(path: Sequence[str]) -> str:
    if len(set(path)) == 1:
        return f"in a circle: {path[0]} reads itself; name another dataset."
    return f"datasets read each other in a circle: {' <- '.join(path)}; one must not."


def _cycle_span(sql: SqlDataset, path: Sequence[str]) -> Span:
    """The place at which a file names a dataset of the cycle that it is in."""
    for query in sql.queries:
        for table in tables_of(query):
            if f"{table.db}.{table.name}".lower() in path and (span := span_of(table)) is not None:
                return span
    return sql.name_span
