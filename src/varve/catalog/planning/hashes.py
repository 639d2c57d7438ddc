"""The hashes of batches as the catalog has them, and those that are made when a batch is about to be compared.

Not here: how rows are hashed (varve/stores/folders/content.py), and what follows from equal hashes (varve/planning).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from varve.model.batch import Batch, Hashes
    from varve.model.build import Build

# Of a dataset that is new in the environment nothing is replaced.
_CHANGED_CODE = """
    select from varve.environment_code where environment = %s and base_code not in ('', code_version) limit 1
"""
_OTHER_CODE = """
    select from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and c.partition = any(%s) and b.code_version not in ('', %s) limit 1
"""
_UNHASHED = """
    select b.partition from unnest(%s::text[], %s::bigint[]) t (partition, batch_id)
    join varve.batch b on (b.dataset, b.partition, b.batch_id) = (%s, t.partition, t.batch_id)
    where (%s and b.content is null) or not coalesce(b.digests, '{}') ?& %s::text[]
"""
# What is there already was made by the run that wrote the rows. Batches that somebody publishes or sweeps in this
# moment go without: to wait for them, while holding others, could be a deadlock.
_RECORD = """
    with free as (
        select b.dataset, b.partition, b.batch_id, t.content, t.digests
        from unnest(%s::text[], %s::bigint[], %s::text[], %s::jsonb[]) t (partition, batch_id, content, digests)
        join varve.batch b on (b.dataset, b.partition, b.batch_id) = (%s, t.partition, t.batch_id)
        for no key update of b skip locked
    )
    update varve.batch b set content = coalesce(b.content, f.content), digests = f.digests || coalesce(b.digests, '{}')
    from free f where (b.dataset, b.partition, b.batch_id) = (f.dataset, f.partition, f.batch_id)
"""


@dataclass(frozen=True)
class HashesOfBatches:
    """The hashes of batches, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def is_compared(self, build: Build, environment: str) -> bool:
        """Whether the rows of a build may well equal what it replaces, although it is made by other code.

        So in an environment (not "") that has changed code, of whichever dataset; and in production where the build
        replaces what other code has made.
        """
        if environment:
            return self.connection.execute(_CHANGED_CODE, (environment,)).rowcount > 0
        parameters = (build.dataset.name, build.paths, build.code_version)
        return bool(build.code_version) and self.connection.execute(_OTHER_CODE, parameters).rowcount > 0

    def unhashed(self, dataset: str, batches: Sequence[Batch], sets: Sequence[str], *, whole: bool) -> list[Batch]:
        """Those of the batches, one of each partition, that lack a hash: of whole rows, or of a set of columns."""
        partitions, ids = [batch.partition for batch in batches], [batch.batch_id.millis for batch in batches]
        rows = self.connection.execute(_UNHASHED, (partitions, ids, dataset, whole, list(sets)))
        without = {path for (path,) in rows}
        return [batch for batch in batches if batch.partition in without]

    def record(self, dataset: str, batches: Sequence[Batch], hashes: Mapping[str, Hashes]) -> None:
        """Record the hashes of batches, one of each partition, by partition."""
        known = [(batch, hashes[batch.partition]) for batch in batches if batch.partition in hashes]
        self.connection.execute(
            _RECORD,
            (
                [batch.partition for batch, _ in known],
                [batch.batch_id.millis for batch, _ in known],
                [of_rows.content for _, of_rows in known],
                [json.dumps(dict(of_rows.digests)) for _, of_rows in known],
                dataset,
            ),
        )
