"""Spark as a Dagster resource: dagster-pyspark's lazy session, opened as the project's settings say.

Not here: opening a session (varve/services/spark.py).
"""

from __future__ import annotations

import importlib
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession  # noqa: TC002 - pydantic reads the annotation of a field

from varve.dagster.runs.own_modules import pickle_by_value
from varve.model.errors import ServiceUnavailable
from varve.project import Project
from varve.services.spark import open_session, will_open_elsewhere
from varve.stores.folders.executors import executor_problems, is_asked, not_asked_yet

if TYPE_CHECKING:
    from varve.services.settings import Settings


logger = logging.getLogger(__name__)


class SparkResource(LazyPySparkResource):
    """A session that is opened on first use. `spark_config` has further session settings, which override others."""

    project: str = Field(
        "", description="the folder of the project whose settings count; empty: found from where it runs"
    )
    deployment: str = Field("", description="one of its deployments; empty: the one that its file or the process names")
    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field: its default is copied
    _opening: Future[SparkSession] | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, project: Project) -> SparkResource:
        """The resource with the settings of this project."""
        return cls(project=str(project.root), deployment=project.deployment or "")

    @property
    def _settings(self) -> Settings:
        return Project.find(self.project or None, deployment=self.deployment or None).settings

    def open_ahead(self) -> None:
        """Begin to open the session in another thread, while Dagster prepares the run.

        Importing PySpark's client takes half a second, for which a run would wait otherwise. In classic mode nothing
        is done: the JVM of this process belongs to the thread that uses it.
        """
        settings = self._settings
        if self._opening is None and settings.spark_master is None:
            will_open_elsewhere(settings)
            opener = ThreadPoolExecutor(1, thread_name_prefix="spark")
            self._opening = opener.submit(_session_of, settings, self.spark_config)
            opener.submit(_import_ahead)
            opener.shutdown(wait=False)

    def _init_session(self) -> None:
        # Each time that the session is asked for: modules are imported meanwhile.
        pickle_by_value(Path(self.project) if self.project else Project.find().root)
        if self._spark_session is None:
            if self._opening is not None:
                self._spark_session = self._opening.result()
            else:
                self._spark_session = _session_of(self._settings, self.spark_config)


def _session_of(settings: Settings, conf: dict[str, Any]) -> SparkSession:
    """A session, after its executors were asked, once for each application, whether they can do their work.

    Raises ServiceUnavailable where no run could. What only Python on executors lacks is a warning in that run's log,
    and `varve doctor` says it each time.
    """
    session = open_session(settings, conf)
    if is_asked(settings) and (file := not_asked_yet(session, settings)) is not None:
        for found in executor_problems(session, settings.lake):
            if found.stops_all:
                raise ServiceUnavailable(f"This Spark cannot be used: {found.problem}. {found.remedy}")
            logger.warning("What runs Python on executors will fail: %s. %s", found.problem, found.remedy)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return session


def _import_ahead() -> None:
    # Writes and projections import these modules when they are first used. Here that happens while the run waits for
    # Spark's answers.
    for name in ("pyarrow.parquet", "sqlglot.dialects.spark"):
        importlib.import_module(name)
