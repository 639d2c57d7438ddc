"""The facet of Varve's own: what OpenLineage has no word for. Beside it is its schema, VarvePartitionRunFacet.json.

Not here: the events (events.py), and importing the client where nobody asked for events (sender.py does it lazily).
"""

from __future__ import annotations

from importlib.metadata import version

import attr
from openlineage.client.generated.base import RunFacet

# Who says so, in every event and facet; the schema of our own facet has a name and no place on the web.
PRODUCER = f"urn:varve:{version('varve')}"
FACET_SCHEMA = "urn:varve:openlineage:1-0-0:VarvePartitionRunFacet"


@attr.define
class VarvePartitionRunFacet(RunFacet):
    """Which partition of which dataset a run computes, into which batch, and what became of that.

    Attributes:
        dataset: `db.table`.
        partition: in the spelling of the catalog, `day=2013-01-05/origin=EWR`; "" for a dataset without partitions.
        batchId: the id of the batch; its milliseconds since 1970 are the begin of the build.
        runId: the run of Dagster's, of which this may be one partition of many.
        environment: the environment it is computed in; "" for production.
        codeVersion: a hash of the code that computes the dataset.
        publish: `pending`, `published`, `reused` (an earlier batch with the same rows became current) or `none`; of
            what a command moves `promoted`, `rolled back` or `withdrawn` (from then on the partition has no batch).
        replaced: the batch that was current before; None where there was none.
    """

    dataset: str
    partition: str
    batchId: str  # noqa: N815 - OpenLineage spells its names so
    runId: str  # noqa: N815
    environment: str
    codeVersion: str  # noqa: N815
    publish: str
    replaced: str | None = attr.field(default=None)

    @staticmethod
    def _get_schema() -> str:
        return FACET_SCHEMA
