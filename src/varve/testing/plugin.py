"""The pytest plugin: every `*.test.yaml` among the datasets of a project is a file of tests.

    [tool.pytest.ini_options]
    addopts = "-p varve.testing.plugin"
    testpaths = ["tests", "assets"]

Nothing heavy is imported until a test runs: pytest loads plugins before it knows of any test, and `--collect-only` only
reads YAML. All tests of a process share one Spark.

Not here: what a test is (files/, cases/), and the command `varve test` (varve/cli/tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from varve.model.errors import VarveError
from varve.project import NoProject, Project
from varve.sql.code.own_files import is_hidden
from varve.testing.files.problems import TestFileErrors
from varve.testing.files.reading import SUFFIX, cases_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from varve.testing.cases.targets import Targets
    from varve.testing.files.case import Case

_TARGETS = pytest.StashKey[dict["Project", "Targets"]]()


class DatasetTestFailed(Exception):
    """A test of a file failed; the message is all that there is to say."""


class DatasetTest(pytest.Item):
    """One test of a file."""

    def __init__(self, *, case: Case, project: Project, **options: Any) -> None:
        super().__init__(**options)
        self.case = case
        self.project = project

    def runtest(self) -> None:
        """Bind the test to its dataset and run it. Raises DatasetTestFailed, and TestFileErrors for a mistake in it."""
        from varve.testing.cases.bound import bind
        from varve.testing.cases.running import run
        from varve.testing.cases.shown import outcome_text
        from varve.testing.session import spark_session

        problems: list[Any] = []
        bound = bind(self.case, self._targets(), problems)
        if bound is None:
            raise TestFileErrors(problems)
        outcome = run(bound, spark_session())
        if not outcome.passed:
            raise DatasetTestFailed(outcome_text(outcome))

    def _targets(self) -> Targets:
        """The datasets of the project, compiled once in a session of pytest."""
        from varve.testing.cases.targets import Targets
        from varve.testing.session import spark_session

        of_projects = self.session.stash.setdefault(_TARGETS, {})
        if self.project not in of_projects:
            of_projects[self.project] = Targets(self.project, spark_session)
        return of_projects[self.project]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message alone: a traceback would show code of Varve."""
        if isinstance(excinfo.value, DatasetTestFailed | VarveError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the line counted from 0, and the name."""
        return self.path, self.case.place.line - 1, self.case.title


class DatasetTestFile(pytest.File):
    """A file of tests."""

    def __init__(self, *, project: Project, **options: Any) -> None:
        super().__init__(**options)
        self.project = project

    def collect(self) -> Iterator[DatasetTest]:
        """Yield the tests of the file. Raises CollectError with everything that is wrong in it."""
        try:
            cases = cases_of([self.path], self.project.root)
        except TestFileErrors as error:
            raise self.CollectError(str(error)) from None
        for case in cases:
            yield DatasetTest.from_parent(self, name=case.name, case=case, project=self.project)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> DatasetTestFile | None:
    """Collect a file of tests that lies among the datasets of a project, and is not hidden there."""
    if file_path.name.startswith(".") or not file_path.name.endswith(SUFFIX):
        return None
    try:
        project = Project.find(file_path)
    except NoProject as error:
        if error.is_absent:
            return None
        raise pytest.UsageError(str(error)) from None
    place, assets = file_path.resolve(), project.assets.resolve()
    if not place.is_relative_to(assets) or is_hidden(place, assets):
        return None
    return DatasetTestFile.from_parent(parent, path=file_path, project=project)


@pytest.fixture(scope="session")
def varve_spark() -> SparkSession:
    """The small Spark that tests of files share: for functions of Python datasets, which take DataFrames."""
    from varve.testing.session import spark_session

    return spark_session()
