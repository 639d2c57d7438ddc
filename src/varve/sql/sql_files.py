"""`SqlFiles`: what loading a folder gives: its datasets, and those that cannot be used, with the reason.

Not here: how the files are put together (sql_project.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from varve.model.broken_dataset import BrokenDataset, DatasetIsBroken
from varve.sql.answers import Answers
from varve.sql.sql_asset import SqlAsset
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.sql.answers import Question
    from varve.sql.syntax.errors import Problem, SourceFile


_REJECT = re.compile(r"\bREJECT\s+UP\s+TO\s+\S+\s+ROWS?\s+INTO\s+(\w+\.\w+)", re.IGNORECASE)


class Draft(Protocol):
    """A file as far as its own text tells."""

    @property
    def source(self) -> SourceFile:
        """The file."""

    @property
    def name(self) -> str:
        """The dataset that it declares."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets that it reads."""


class SqlFiles(dict[str, SqlAsset]):
    """The datasets of a folder's files, by name, each after those it reads; and those that cannot be used.

    Attributes:
        problems: everything that is wrong in the files.
        broken: what is declared by a file with a problem, or reads such a dataset; none of them is in the mapping.
        undeclared: names that files read and that nobody declares.
        questions: the files with columns whose types only Spark can tell, and of which it was not asked yet.
        answers: what Spark was asked before.
    """

    def __init__(  # noqa: PLR0917
        self,
        assets: Mapping[str, SqlAsset],
        problems: Iterable[Problem] = (),
        broken: Iterable[BrokenDataset] = (),
        undeclared: Iterable[str] = (),
        questions: Iterable[tuple[Question, Problem]] = (),
        answers: Answers | None = None,
    ) -> None:
        super().__init__(assets)
        self.problems = tuple(problems)
        self.broken = tuple(broken)
        self.undeclared = tuple(undeclared)
        self.questions = tuple(questions)
        self.answers = answers or Answers()

    def __missing__(self, name: str) -> SqlAsset:
        """Raises DatasetIsBroken for a dataset that a file declares and that cannot be used, KeyError for others."""
        for each in self.broken:
            if each.name == name:
                raise DatasetIsBroken(each)
        raise KeyError(name)

    def checked(self) -> SqlFiles:
        """Itself. Raises SqlErrors with everything that is wrong."""
        if self.problems:
            raise SqlErrors(self.problems)
        return self


def rejected_in(source: SourceFile) -> str:
    """The dataset of rejected rows that a text names, whatever else is wrong with it; "" where it names none."""
    found = _REJECT.search(source.text)
    return found[1].lower() if found else ""


def broken_datasets(
    drafts: Sequence[Draft],
    unread: Mapping[SourceFile, str],
    problems: Sequence[Problem],
    known: Mapping[str, Dataset],
    assets: Mapping[str, SqlAsset],
) -> list[BrokenDataset]:
    """What cannot be used: whose file has a problem, and what reads such a dataset, however far downstream."""
    errors: dict[str, list[str]] = {}
    for problem in sorted(set(problems), key=lambda each: (each.source.path, each.span, each.message)):
        errors.setdefault(problem.source.path, []).append(str(problem))
    broken = [
        BrokenDataset(name, source.path, tuple(errors.get(source.path, ())), rejected=rejected_in(source))
        for source, name in unread.items()
    ]
    # A name that two files declare is nobody's; the problem stands in one of them.
    twice = {each.name: each.errors for each in broken if each.name}
    unusable = {name: each.errors[:1] for each in broken for name in (each.name, each.rejected) if name}
    for draft in drafts:
        own = tuple(errors.get(draft.source.path, ())) or twice.get(draft.name, ())
        waits_for = tuple(name for name in draft.reads if name in unusable or name not in known)
        if own or waits_for or draft.name not in assets:
            dataset = known.get(draft.name)
            partitioning = dataset.partitioning if dataset is not None else None
            causes = own[:1] or tuple(dict.fromkeys(each for name in waits_for for each in unusable.get(name, ())))
            rejected = rejected_in(draft.source)
            unusable |= dict.fromkeys([draft.name, rejected] if rejected else [draft.name], causes)
            broken.append(
                BrokenDataset(
                    draft.name, draft.source.path, own, waits_for,
                    tuple(each.splitlines()[0] for each in causes), draft.reads, partitioning, rejected,
                )
            )  # fmt: skip
    return broken
