"""The tests of a project's files, bound together and run one after the other in one Spark session.

Not here: choosing tests by their names (varve/testing/files/selection.py), and printing (varve/cli/tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.testing.cases.bound import bind
from varve.testing.cases.running import run
from varve.testing.cases.targets import Targets
from varve.testing.files.problems import TestFileErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from varve.project import Project
    from varve.testing.cases.bound import BoundCase, UnusableCase
    from varve.testing.cases.running import Outcome
    from varve.testing.files.case import Case
    from varve.testing.files.problems import Problem


def bound_cases(
    project: Project, cases: Iterable[Case], spark: Callable[[], SparkSession]
) -> list[BoundCase | UnusableCase]:
    """Return the tests with their datasets. Raises TestFileErrors with everything that is wrong in any of them.

    Spark is asked only where the type of a column is one that only it can tell.
    """
    targets = Targets(project, spark)
    problems: list[Problem] = []
    bound = [bind(case, targets, problems) for case in cases]
    if problems:
        raise TestFileErrors(problems)
    return [bound_case for bound_case in bound if bound_case is not None]


def outcomes(bound: Iterable[BoundCase | UnusableCase], spark: SparkSession) -> Iterator[Outcome]:
    """Yield the outcome of each test as soon as it has run."""
    for bound_case in bound:
        yield run(bound_case, spark)
