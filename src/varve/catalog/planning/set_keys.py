"""The keys of sets that data fill: which batch has which keys, and which keys the current batches have together.

The keys of a batch follow from the batch, which never changes. So they are written once, by whoever looks first, and
what a set should have is asked of what is current: nothing has to be remembered between a publish and the look.

Not here: reading the keys (varve/dagster/partitions/set_feed.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from varve.model.partitions.set_source import SetSource

_UNREAD = """
    select c.partition, c.batch_id from varve.current c
    where c.dataset = %(dataset)s and not exists (
        select from varve.set_keys k where (k.set_name, k.query, k.dataset, k.partition, k.batch_id)
            = (%(set_name)s, %(query)s, c.dataset, c.partition, c.batch_id))
    order by c.partition limit %(limit)s
"""
_RECORD = """
    insert into varve.set_keys (set_name, query, dataset, partition, batch_id, keys, refused)
    values (%s, %s, %s, %s, %s, %s, %s) on conflict do nothing
"""
# One statement: keys and what is not read yet are of one moment.
_CURRENT = """
    with of_current as (
        select k.keys, k.refused, k.batch_id is null as is_unread from varve.current c
        left join varve.set_keys k on (k.set_name, k.query, k.dataset, k.partition, k.batch_id)
            = (%(set_name)s, %(query)s, c.dataset, c.partition, c.batch_id)
        where c.dataset = %(dataset)s
    )
    select array(select distinct unnest(keys) from of_current order by 1),
        array(select distinct unnest(refused) from of_current order by 1),
        (select count(*) from of_current where is_unread)
"""
_EVER = "select distinct unnest(keys) from varve.set_keys where set_name = %s"


class CurrentKeys(NamedTuple):
    """What the current batches say of a set.

    Attributes:
        keys: the keys, as they are spelt.
        refused: values that can be no keys, in words.
        unread: how many current batches have not been read yet.
    """

    keys: tuple[str, ...]
    refused: tuple[str, ...]
    unread: int


@dataclass(frozen=True)
class SetKeys:
    """The keys of one set that data fill, over one connection in autocommit mode."""

    connection: psycopg.Connection
    set_name: str
    source: SetSource

    def unread(self, limit: int) -> dict[str, int]:
        """The current batches whose keys are not known, by partition; at most `limit`."""
        rows = self.connection.execute(_UNREAD, {**self._names(), "limit": limit})
        return dict(rows.fetchall())

    def record(
        self, batches: Mapping[str, int], keys: Mapping[str, list[str]], refused: Mapping[str, list[str]]
    ) -> None:
        """Write which keys these batches have, all or none; what another process has written is the same, and stays."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(
                _RECORD,
                [
                    (
                        self.set_name, self.source.digest, self.source.dataset, path, batch,
                        sorted(keys.get(path, [])), sorted(refused.get(path, [])),
                    )
                    for path, batch in batches.items()
                ],
            )  # fmt: skip

    def current(self) -> CurrentKeys:
        """The keys that the current batches have together."""
        row = self.connection.execute(_CURRENT, self._names()).fetchone()
        assert row is not None
        return CurrentKeys(tuple(row[0]), tuple(row[1]), row[2])

    def ever(self) -> set[str]:
        """The keys that any batch has brought that is known, by this query or an earlier one."""
        return {key for (key,) in self.connection.execute(_EVER, (self.set_name,))}

    def _names(self) -> dict[str, str]:
        return {"set_name": self.set_name, "query": self.source.digest, "dataset": self.source.dataset}
