"""What a run tells others about its builds: lines of its log, and OpenLineage events where somebody wants them.

Not here: what Dagster shows of a batch (batch_metadata.py), the events (varve/observe/lineage), and the format of the
log (varve/observe/log_lines.py).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from varve.catalog.living.killed_builds import KilledBuilds
from varve.catalog.statements import KILLED
from varve.model.build import Build
from varve.model.errors import VarveError, counted
from varve.observe.lineage.sender import Lineage
from varve.observe.log_lines import LogFields, set_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from varve.model.batch import Batch
    from varve.planning.graph import Graph
    from varve.services.settings import Settings
    from varve.stores.open_build import OpenBuild


def tell_killed(graph: Graph, connection: psycopg.Connection, settings: Settings) -> None:
    """Tell of the builds that have failed because their run was killed, whoever has found them; of each once."""
    lineage = Lineage.open(graph, settings.project)
    if not lineage.is_wanted:
        return
    # They are taken when all is sent: where this process is killed before, somebody else tells of them.
    with KilledBuilds(connection).untold(graph.datasets) as builds:
        for killed in builds:
            # With other partitions than it was declared with then, nobody can say what was to be made.
            with contextlib.suppress(VarveError):
                dataset = graph.datasets[killed.dataset]
                keys = tuple(dataset.partitioning.from_path(path) for path in killed.paths)
                build = Build(dataset, keys, killed.batch_id, killed.run_id, {}, code_version=killed.code_version)
                lineage.tell(lambda events, of=build, where=killed.environment: events.failed(of, KILLED, None, where))  # type: ignore[misc]
        problem = lineage.close()
    if problem:
        logging.getLogger(__name__).warning("%s", problem)


class Telling:
    """Tells what becomes of the builds of one run. Nothing here raises or waits: a run never fails for it.

    `log` is the log of the run; without one, lines go to Python's.
    """

    def __init__(self, graph: Graph, settings: Settings, log: logging.Logger | None = None) -> None:
        self._lineage = Lineage.open(graph, settings.project)
        self._log = log or logging.getLogger(__name__)

    def began(self, opened: OpenBuild) -> None:
        """A build has begun: its partitions are locked, and its batch id is given."""
        build, environment = opened.build, opened.catalog.environment
        set_fields(LogFields.of(build))
        self._log.info("%s has begun: %s", build, counted(len(build.partitions), "partition"))
        self._lineage.tell(lambda events: events.started(build, environment))

    def published(self, opened: OpenBuild) -> None:
        """The batches of a build have become current."""
        build, staged, environment = opened.build, opened.staged, opened.catalog.environment
        rows, size = sum(batch.rows for batch in staged), sum(batch.size for batch in staged)
        self._log.info(
            "%s is published: %s, %s, %s bytes",
            build, counted(len(staged), "partition"), counted(rows, "row"), f"{size:,}",
        )  # fmt: skip
        self._lineage.tell(lambda events: events.completed(build, staged, environment))

    def reused(self, opened: OpenBuild, batches: Sequence[Batch]) -> None:
        """Earlier batches have become current in place of those that the build would have made."""
        build, environment = opened.build, opened.catalog.environment
        self._log.info("%s needs no computation: %s of before", build, counted(len(batches), "batch"))
        self._lineage.tell(lambda events: events.reused(build, batches, environment))

    def failed(self, opened: OpenBuild, reason: str) -> None:
        """A build ends without a publish."""
        build, broken, environment = opened.build, opened.broken_expectations, opened.catalog.environment
        self._log.error("%s has failed: %s", build, reason)
        self._lineage.tell(lambda events: events.failed(build, reason, broken, environment))

    def ended(self) -> None:
        """The lines from here on are of no build."""
        set_fields(None)

    def close(self) -> None:
        """The run ends: events that are not sent within some seconds are lost, which is said once."""
        if problem := self._lineage.close():
            self._log.warning("%s", problem)
