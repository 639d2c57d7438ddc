"""Datasets that were dropped: ended in the catalog at once, and remembered until the data of their batches is deleted.

One transaction gives all that batches, and whoever deletes them, still need the name of the drop, which no declaration
can have: `shop.orders#1795210813484`. Everything else of the dataset is deleted. So a dataset that is declared again
under the same name finds nothing there, and the sweep deletes the old batches when their time has come, as any others.
The number of a drop is from the clock of batch ids: batches with a lower id are of the dropped dataset.

Not here: what readers are shown (`Store.drop`, `Store.finish_drop`), and captures (varve/cdc/ending.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

from varve.catalog.statements import KILLED, NEXT_BATCH_ID
from varve.model.batch import BatchId
from varve.model.errors import AlreadyBuilding, VarveError, counted, some

if TYPE_CHECKING:
    import psycopg

_MARK = "#"
_NOTHING_CHANGED = "Nothing was changed."
# A build that begins at this moment waits for this lock, because its batches refer to the row.
_LOCK = "select store from varve.dataset where dataset = %s for update"
_LIVING = "select partition, run_id from varve.living where dataset = %s order by partition"
_PINNED = "select partition, batch_id, owner, reason from varve.valid_pin where dataset = %s order by 1, 2, 3"
_READ_ELSEWHERE = """
    select o.dataset, o.project from varve.owner o where o.project <> %s and exists (
        select from varve.current c join varve.batch b using (dataset, partition, batch_id)
        where c.dataset = o.dataset and b.inputs @> %s)
    order by 1
"""
_OVERLAID = """
    select name, created_by from varve.living_environment e
    where exists (select from varve.overlay o where o.environment = e.name and o.dataset = %s) order by name
"""
_REMEMBER = """
    insert into varve.dataset (dataset, store, declaration, shown_declaration, generation)
    select %(remains)s, store, (declaration - 'reject_into') || %(dropped)s, shown_declaration, generation
    from varve.dataset where dataset = %(dataset)s
"""
_BATCHES = """
    update varve.batch b set dataset = %(remains)s,
        state = case when b.state = 'published' then 'retired' when b.state in ('building', 'staged') then 'failed'
            else b.state end,
        retired_at = case when b.state = 'published' then clock_timestamp() else b.retired_at end,
        failed_at = case when b.state in ('building', 'staged') then clock_timestamp() else b.failed_at end,
        failure = case when b.state in ('building', 'staged') then %(killed)s else b.failure end
    where b.dataset = %(dataset)s
"""
# What readers of the projection may still be shown: a sweep leaves it alone until the drop is finished.
_MAY_BE_SHOWN = """
    insert into varve.withdrawn (dataset, partition)
    select %(remains)s, partition from varve.current where dataset = %(dataset)s on conflict do nothing
"""
# The rows that are needed until the batches are deleted, beside those of varve.dataset and varve.batch.
RENAMED = (
    "publish", "published", "withdrawn", "part", "part_file", "batch_part", "generation", "set_keys", "former_overlay",
)  # fmt: skip
# What ends before that: pins, which have expired, refer to batches; what leaves an overlay is noted.
_ENDED_FIRST = ("pin", "overlay")
# All others with the name of a dataset, in an order that foreign keys allow.
ENDED = (
    *_ENDED_FIRST, "current", "hold", "acceptance", "arrival", "rejected_arrival", "left_out", "reopened", "dirty",
    "accepted_code", "deployed", "deployment", "environment_code", "environment_generation",
    "owner", "killed",
)  # fmt: skip
_RENAME = sql.SQL("update {} set dataset = %(remains)s where dataset = %(dataset)s")
_END = sql.SQL("delete from {} where dataset = %(dataset)s")
# What a backfill of it was about to make: what is declared under its name later is something else.
_END_AWAITED = "delete from varve.acceptance where source = %(dataset)s and version is null"
# By the name first: each run of a dataset asks, and to look into the declarations of all takes far longer.
_DROPPED = """
    select dataset, store, declaration -> 'dropped' from varve.dataset
    where case when %s::text is null or starts_with(dataset, %s || '#') then declaration ? 'dropped' end
    order by dataset
"""
_FINISHED = """
    with shown as (delete from varve.withdrawn where dataset = %(remains)s)
    update varve.dataset set declaration = jsonb_set(declaration, '{dropped,finished}', 'true')
    where dataset = %(remains)s
"""
_TO_DELETE = """
    select from varve.batch where dataset = %s and state <> 'failed' and deleted_at is null limit 1
"""
_KEPT = "select count(*), coalesce(sum(bytes), 0)::bigint from varve.batch where dataset = %s and state = any(%s)"


@dataclass(frozen=True, slots=True)
class DroppedDataset:
    """A dataset that was dropped, and of which batches wait to be deleted.

    Attributes:
        number: when it was dropped; batches with lower ids are of it, those with higher ids of its successor.
        dropped_by: who dropped it.
        finished: whether readers by name are shown nothing of it any more, and its store has noted the drop.
    """

    name: str
    number: BatchId
    store: str
    dropped_by: str
    finished: bool

    @property
    def remains(self) -> str:
        """The name under which the catalog has its batches: `shop.orders#1795210813484`."""
        return f"{self.name}{_MARK}{self.number.millis}"


def declared_name(name: str) -> str:
    """The name that a dataset of the catalog was declared with: without the number of its drop."""
    return name.partition(_MARK)[0]


def is_dropped(name: str) -> bool:
    """Whether this is the name that a drop has given."""
    return _MARK in name


@dataclass(frozen=True)
class Drops:
    """The drops in a catalog, over one connection in autocommit mode."""

    connection: psycopg.Connection

    def of(self, name: str | None = None) -> list[DroppedDataset]:
        """The dropped datasets of this name (None: all) of which the catalog still has rows, the oldest first."""
        return [
            DroppedDataset(
                declared_name(remains), BatchId(int(remains.partition(_MARK)[2])), store, entry["by"], entry["finished"]
            )
            for remains, store, entry in self.connection.execute(_DROPPED, (name, name))
        ]

    def refuse(self, name: str) -> None:
        """Raise AlreadyBuilding where a run builds the dataset, and VarveError where somebody has pinned batches."""
        if living := self.connection.execute(_LIVING, (name,)).fetchall():
            raise AlreadyBuilding(
                f"{name}: {some([f'run {run_id} builds {path}' for path, run_id in living], limit=3)}. "
                f"{_NOTHING_CHANGED} Wait for its end, or end it in Dagster, and drop the dataset then."
            )
        if pins := self.connection.execute(_PINNED, (name,)).fetchall():
            pinned = [f"{path} batch {batch} by {owner} ({reason})" for path, batch, owner, reason in pins]
            raise VarveError(
                f"{name}: somebody has pinned {counted(len(pins), 'batch')}: {some(pinned, limit=3)}. "
                f"{_NOTHING_CHANGED} Ask them whether they still need it; `varve unpin {name} --owner OWNER` takes "
                "pins off."
            )
        if owners := [
            f"{environment} of {owner}" for environment, owner in self.connection.execute(_OVERLAID, (name,))
        ]:
            raise VarveError(
                f"{name}: environments have batches of it: {some(owners)}. {_NOTHING_CHANGED} End them first: "
                "`varve env drop`."
            )

    def refuse_read_elsewhere(self, name: str, project: str) -> None:
        """Raise VarveError where current batches of another project were made from the dataset."""
        found = self.connection.execute(_READ_ELSEWHERE, (project, Jsonb([[name]]))).fetchall()
        if readers := [f"{reader} of project {owner}" for reader, owner in found]:
            raise VarveError(
                f"{name}: what is current of {some(readers)} was made from it. {_NOTHING_CHANGED} Let them read "
                "something else first; with --although-read it is dropped all the same, and they keep what they have."
            )

    def drop(self, name: str, *, by: str) -> DroppedDataset:
        """End the dataset in the catalog, in one transaction or a savepoint of the caller's.

        Its current batches are retired, and its readers by name have to be told next (`finished`).

        Raises what `refuse` raises, and VarveError where the catalog has no such dataset.
        """
        with self.connection.transaction():
            row = self.connection.execute(_LOCK, (name,)).fetchone()
            if row is None:
                raise VarveError(f"the catalog has no dataset {name}. {_NOTHING_CHANGED}")
            self.refuse(name)
            number = self.connection.execute(NEXT_BATCH_ID).fetchone()
            assert number is not None
            dropped = DroppedDataset(name, BatchId(number[0]), row[0], by, finished=False)
            entry = {"dropped": {"by": by, "finished": False}}
            names: dict[str, Any] = {"dataset": name, "remains": dropped.remains}
            self.connection.execute(_REMEMBER, {**names, "dropped": Jsonb(entry)})
            for table in _ENDED_FIRST:
                self.connection.execute(_END.format(sql.Identifier("varve", table)), names)
            self.connection.execute(_BATCHES, {**names, "killed": KILLED})
            for table in RENAMED:
                self.connection.execute(_RENAME.format(sql.Identifier("varve", table)), names)
            self.connection.execute(_MAY_BE_SHOWN, names)
            self.connection.execute(_END_AWAITED, names)
            # Batches refer to their dataset.
            for table in (*ENDED[len(_ENDED_FIRST) :], "dataset"):
                self.connection.execute(_END.format(sql.Identifier("varve", table)), names)
        return dropped

    def finished(self, dropped: DroppedDataset) -> None:
        """Record that readers by name are shown nothing of it any more, and that its store has noted the drop."""
        self.connection.execute(_FINISHED, {"remains": dropped.remains})

    def kept(self, name: str, *states: str) -> tuple[int, int]:
        """How many batches in these states the catalog has under this name, and their size in bytes."""
        row = self.connection.execute(_KEPT, (name, list(states))).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    def has_data(self, dropped: DroppedDataset) -> bool:
        """Whether data of its batches is still to be deleted."""
        return self.connection.execute(_TO_DELETE, (dropped.remains,)).fetchone() is not None

    def forget(self, dropped: DroppedDataset) -> None:
        """Delete the last rows of a dropped dataset, whose drop is finished and whose data is deleted."""
        with self.connection.transaction():
            for table in (*RENAMED, "batch", "dataset"):
                self.connection.execute(_END.format(sql.Identifier("varve", table)), {"dataset": dropped.remains})
