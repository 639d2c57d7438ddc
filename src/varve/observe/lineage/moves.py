"""Events of what becomes current without being computed: promotions, corrections, rollbacks.

Everything is read from the catalog, after the transaction that has moved it.

Not here: the events of builds (events.py), which runs tell of as they compute (varve/dagster/runs/builds/telling.py).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.rows import batches_of
from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.errors import VarveError
from varve.observe.lineage.sender import Lineage

if TYPE_CHECKING:
    from pathlib import Path

    from varve.planning.graph import Graph

PROMOTED, ROLLED_BACK, WITHDRAWN = "promoted", "rolled back", "withdrawn"
_MOVED = """
    select p.dataset, p.build_id, p.kind, b.code_version, before.batch_id,
        c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from varve.publish p join varve.published c using (dataset, build_id)
    left join varve.batch b on (b.dataset, b.partition, b.batch_id) = (c.dataset, c.partition, c.batch_id)
    left join lateral (
        select e.batch_id from varve.publication e
        where (e.dataset, e.partition) = (c.dataset, c.partition) and e.id < p.id order by e.id desc limit 1
    ) before on true
    where p.run_id = %s order by p.id, c.partition
"""


def tell_moves(graph: Graph, connection: psycopg.Connection, project: Path, run_id: str) -> None:
    """Tell what a command has made current, where OpenLineage is configured; `run_id` is as the catalog has it.

    What was moved stays so, whatever becomes of this: events that are not sent within some seconds are lost, and so are
    those of a catalog that cannot be asked any more, which is logged. Raises nothing.
    """
    lineage = Lineage.open(graph, project)
    if lineage.is_wanted:
        try:
            rows = connection.execute(_MOVED, (run_id,)).fetchall()
        except psycopg.Error as error:
            rows = []
            logging.getLogger(__name__).warning("No OpenLineage events of %s: %s", run_id, error)
        for name, millis, kind, code_version, before, *columns in rows:
            path, batch_id = columns[0], columns[1]
            # A dataset that is declared no more, or with other partitions: nobody here can say what it is made of.
            with contextlib.suppress(VarveError, KeyError):
                dataset = graph.datasets[name]
                key = dataset.partitioning.from_path(path)
                batch = None if batch_id is None else batches_of([tuple(columns)])[path]
                build = Build(
                    dataset, (key,), BatchId(millis), run_id, {key: None if before is None else BatchId(before)},
                    {key: set(batch.inputs) if batch else set()}, code_version=code_version or "",
                )  # fmt: skip
                how = WITHDRAWN if batch is None else ROLLED_BACK if kind == "rollback" else PROMOTED
                lineage.tell(lambda events, of=build, made=batch, what=how: events.moved(of, made, what))  # type: ignore[misc]
    if problem := lineage.close():
        logging.getLogger(__name__).warning("%s", problem)
