"""What of a change of code was computed before: kept batches that the code here has made from what is current.

Not here: the plan that shows them (varve/cli/plan), and taking them instead of computing (varve/catalog/traces.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.catalog.traces import Traces
from varve.model.batch import Input
from varve.planning.changes.code_changes import KeptBatches
from varve.planning.readers import Keys
from varve.planning.run_requests import landing_source

if TYPE_CHECKING:
    import psycopg

    from varve.model.partitions.dimension import Members
    from varve.planning.changes.code_changes import CodeChange
    from varve.planning.graph import Graph

_CURRENT = "select partition, batch_id::text from varve.current where dataset = %s"
_ARRIVED = "select partition, fingerprint from varve.arrival where dataset = %s and partition = any(%s)"
_COMPARED = """
    select t.partition, b.environment, b.content is not null and p.content is not null, b.content = p.content
    from unnest(%s::text[], %s::bigint[]) as t (partition, batch_id)
    join varve.batch b on (b.dataset, b.partition, b.batch_id) = (%s, t.partition, t.batch_id)
    left join varve.current c on (c.dataset, c.partition) = (b.dataset, b.partition)
    left join varve.batch p on (p.dataset, p.partition, p.batch_id) = (c.dataset, c.partition, c.batch_id)
    order by 1
"""


def with_kept(connection: psycopg.Connection, graph: Graph, change: CodeChange, members: Members | None) -> CodeChange:
    """The change with the batches of the code here that are kept, of any environment, and how their rows compare."""
    dataset = graph.datasets.get(change.dataset)
    if dataset is None or not change.partitions or not change.version or dataset.recomputes:
        return change
    known = Keys(dataset.partitioning, members)
    keys = [key for path in change.partitions if (key := known.key(path)) is not None]
    inputs: dict[str, set[Input]] = {key.path: set() for key in keys}
    if dataset.arrives:
        for path, fingerprint in connection.execute(_ARRIVED, (dataset.name, list(inputs))).fetchall():
            inputs[path].add(Input(landing_source(dataset), path, fingerprint))
    for edge in graph.edges[dataset.name]:
        current: dict[str, str] = dict(connection.execute(_CURRENT, (edge.upstream.name,)).fetchall())
        for key, mapped in zip(keys, edge.dependency.upstream_of_each(keys, members=members), strict=True):
            inputs[key.path] |= {
                Input(edge.upstream.name, upstream.path, current[upstream.path])
                for upstream in mapped.keys if upstream.path in current
            }  # fmt: skip
    made = {path: reads for path, reads in inputs.items() if reads}
    batches = Traces(connection).equal_batches(dataset.name, change.version, made, current_too=False)
    ids = [batch.batch_id.millis for batch in batches.values()]
    rows = connection.execute(_COMPARED, (list(batches), ids, dataset.name)).fetchall()
    kept = KeptBatches(
        tuple(path for path, *_ in rows),
        tuple(sorted({environment for _, environment, *_ in rows if environment})),
        sum(bool(compared) for *_, compared, _ in rows),
        tuple(path for path, _, compared, equal in rows if compared and not equal),
    )
    return replace(change, kept=kept)
