"""`SqlFiles`: the result of loading a folder: its datasets, and those that cannot be used, with the reason.

Not here: how the files are loaded (sql_project.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from varve.model.broken_dataset import BrokenDataset, DatasetIsBroken
from varve.sql.answers import Answers
from varve.sql.sql_asset import SqlAsset
from varve.sql.syntax.clauses.timeseries import calendar_files
from varve.sql.syntax.errors import SqlErrors
from varve.sql.values import ValueAnswers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.sql.answers import Question
    from varve.sql.partitions.value_questions import ValueQuestion
    from varve.sql.syntax.errors import Problem, SourceFile


_REJECT = re.compile(r"\bREJECT\s+UP\s+TO\s+\S+\s+ROWS?\s+INTO\s+(\w+\.\w+)", re.IGNORECASE)


class Draft(Protocol):
    """A parsed file, without knowledge of the datasets that it reads."""

    @property
    def source(self) -> SourceFile:
        """The source file."""

    @property
    def name(self) -> str:
        """The name of the dataset that it declares."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the datasets that it reads."""


class SqlFiles(dict[str, SqlAsset]):
    """The datasets of a folder's files by name, each after those that it reads; and those that cannot be used.

    Attributes:
        problems: all problems in the files.
        broken: the datasets whose file has a problem, or that read such a dataset; none of them is in the mapping.
        undeclared: the names of datasets that files read and nobody declares.
        questions: the files with columns whose types only Spark can tell, and about which it was not asked yet.
        answers: Spark's answers to earlier questions.
        value_questions: the files in whose conditions there are functions that only Spark can evaluate, by name.
        value_answers: Spark's answers on those.
    """

    def __init__(  # noqa: PLR0917
        self,
        assets: Mapping[str, SqlAsset],
        problems: Iterable[Problem] = (),
        broken: Iterable[BrokenDataset] = (),
        undeclared: Iterable[str] = (),
        questions: Iterable[tuple[Question, Problem]] = (),
        answers: Answers | None = None,
        value_questions: Mapping[str, ValueQuestion] | None = None,
        value_answers: ValueAnswers | None = None,
    ) -> None:
        super().__init__(assets)
        self.problems = tuple(problems)
        self.broken = tuple(broken)
        self.undeclared = tuple(undeclared)
        self.questions = tuple(questions)
        self.answers = answers or Answers()
        self.value_questions = dict(value_questions or {})
        self.value_answers = value_answers or ValueAnswers()

    def __missing__(self, name: str) -> SqlAsset:
        """Raises DatasetIsBroken for a dataset that a file declares and that cannot be used, KeyError for others."""
        for broken_dataset in self.broken:
            if broken_dataset.name == name:
                raise DatasetIsBroken(broken_dataset)
        raise KeyError(name)

    def checked(self) -> SqlFiles:
        """Return this value. Raises SqlErrors with all problems."""
        if self.problems:
            raise SqlErrors(self.problems)
        return self


def rejected_in(source: SourceFile) -> str:
    """Return the dataset of rejected rows that a text names, whatever else is wrong with it; "" where it names none."""
    match = _REJECT.search(source.text)
    return match[1].lower() if match else ""


def broken_datasets(
    drafts: Sequence[Draft],
    unread: Mapping[SourceFile, str],
    problems: Sequence[Problem],
    datasets: Mapping[str, Dataset],
    assets: Mapping[str, SqlAsset],
) -> list[BrokenDataset]:
    """Return the datasets whose file has a problem, and those that read such a dataset, however far downstream."""
    errors: dict[str, list[str]] = {}
    for problem in sorted(set(problems), key=lambda problem: (problem.source.path, problem.span, problem.message)):
        errors.setdefault(problem.source.path, []).append(str(problem))
    broken = [
        BrokenDataset(name, source.path, _errors_of(source, errors), rejected=rejected_in(source))
        for source, name in unread.items()
    ]
    # A name that two files declare belongs to neither; the problem is reported in one of them.
    twice = {broken_dataset.name: broken_dataset.errors for broken_dataset in broken if broken_dataset.name}
    unusable = {
        name: broken_dataset.errors[:1]
        for broken_dataset in broken
        for name in (broken_dataset.name, broken_dataset.rejected)
        if name
    }
    # One of them may declare what nobody else does.
    nameless = tuple(error for each in broken if not each.name for error in each.errors[:1])
    for draft in drafts:
        own = _errors_of(draft.source, errors) or twice.get(draft.name, ())
        waits_for = tuple(name for name in draft.reads if name in unusable or name not in datasets)
        if own or waits_for or draft.name not in assets:
            dataset = datasets.get(draft.name)
            partitioning = dataset.partitioning if dataset is not None else None
            upstream_causes = (cause for name in waits_for for cause in unusable.get(name, nameless))
            causes = own[:1] or tuple(dict.fromkeys(upstream_causes))
            rejected = rejected_in(draft.source)
            unusable |= dict.fromkeys([draft.name, rejected] if rejected else [draft.name], causes)
            broken.append(
                BrokenDataset(
                    draft.name, draft.source.path, own, waits_for,
                    tuple(cause.splitlines()[0] for cause in causes), draft.reads, partitioning, rejected,
                )
            )  # fmt: skip
    return broken


def _errors_of(source: SourceFile, errors: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the errors of a file; where it has none, those of the calendars that it names."""
    if source.path in errors or not errors:
        return tuple(errors.get(source.path, ()))
    return tuple(error for file in calendar_files(source) for error in errors.get(str(file), ()))
