"""Undoes a promotion that moved readers to another generation: shape, batches and code are those of before, at once.

All datasets of the promotion go back together, from what the catalog remembers: whichever declaration is checked out.

Not here: a promotion itself (promoter.py), and rollbacks within a generation (varve/cli/batches/rollback.py).
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from varve.catalog.code.decision import Decision
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations, dataset_of
from varve.catalog.code.going_forward import GoingForward
from varve.catalog.history.history import NOTHING_CHANGED, History
from varve.model.errors import VarveError, some
from varve.model.partitions.key import PartitionKey, parse_path
from varve.model.policy import OnCodeChange
from varve.model.store_options import WarehouseOptions
from varve.stores.together import PendingChange, make_current, unless_locked

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

    from varve.catalog.catalog import Catalog
    from varve.catalog.code.deployments import Deployment
    from varve.catalog.history.rows import Reversal
    from varve.model.batch import Batch, BatchId
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.stores.store import Store

_HELD = "select partition, since from varve.hold where dataset = %s and partition = any(%s)"
_HOLD = "insert into varve.hold (dataset, partition, since) values (%s, %s, %s)"
_ADD_PLAN = """
    insert into varve.plan (digest, contents, made_by, applied_at, applied_by)
    values (%s, %s, %s, clock_timestamp(), %s) returning id
"""


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoing a promotion changes in one dataset.

    Attributes:
        moves: by partition the batch that is current, and the one that was before.
        generation: to which it goes back; None where it stays in its own.
        since: the partitions that were published since, of a generation that readers leave: they have none afterwards.
    """

    dataset: str
    moves: Mapping[str, tuple[BatchId | None, Batch | None]]
    generation: int | None
    since: tuple[str, ...] = ()


def left_generations(connection: psycopg.Connection, changes: Sequence[Reversal]) -> dict[str, int]:
    """By dataset the generation that readers left with these changes of one run; none where they stayed in it."""
    generations, left = Generations(connection), {}
    for name, now in generations.published({change.dataset for change in changes}).items():
        ids = {change.partition: change.before for change in changes if change.dataset == name and change.before}
        made = generations.made(name, ids)
        if made is not None and made.generation != now.generation:
            left[name] = made.generation
    return left


@dataclass(frozen=True)
class Undoing:
    """Undoes promotions.

    Attributes:
        store_of: opens the store of a dataset over the catalog.
        declared: the datasets that are declared here, for the grants on their views.
    """

    catalog: Catalog
    store_of: Callable[[Dataset], Store]
    declared: Mapping[str, Dataset]

    def look(self, run_id: str) -> list[Undo]:
        """What undoing a promotion would change; empty where it moved nobody to another generation.

        Raises VarveError where something that it published was replaced since.
        """
        history = History(self.catalog.connection)
        changes = history.of_run(run_id)
        moved = left_generations(self.catalog.connection, changes)
        if not moved:
            return []
        newer = [f"{change.dataset} {change.partition}" for change in changes if change.current != change.published]
        if newer:
            raise VarveError(
                f"since run {run_id}, others have changed {some(newer, limit=3)}. {NOTHING_CHANGED} Check out the code "
                "of before it, and go back with what was corrected since: varve evolve DATASET."
            )
        undos = []
        for name in sorted({change.dataset for change in changes}):
            of_dataset = [change for change in changes if change.dataset == name]
            batches: dict[str, Batch] = {}
            for batch_id in {change.before for change in of_dataset if change.before is not None}:
                batches |= history.batch(
                    name, batch_id, [change.partition for change in of_dataset if change.before == batch_id]
                )
            moves = {change.partition: (change.current, batches.get(change.partition)) for change in of_dataset}
            since = self.catalog.current(name).keys() - moves.keys() if name in moved else ()
            undos.append(Undo(name, moves, moved.get(name), tuple(sorted(since))))
        return undos

    def undo(self, undos: list[Undo], *, reason: str, by: str) -> str:
        """Do it, in one transaction; returns the run under which it is recorded. Raises what a publish raises."""
        run_id = f"rollback-{uuid.uuid4().hex[:8]} by {by}"
        generations, deployments = Generations(self.catalog.connection), Deployments(self.catalog.connection)
        published = generations.published([undo.dataset for undo in undos])
        codes = {undo.dataset: self._code_before(undo) for undo in undos}
        changes, leaving = [], []
        for undo in undos:
            now = published[undo.dataset]
            shape = now if undo.generation is None else generations.known(undo.dataset, undo.generation)
            grants = self.declared[undo.dataset].warehouse.grants if undo.dataset in self.declared else ()
            dataset = replace(
                dataset_of(undo.dataset, shape.store, shape.declaration), warehouse=WarehouseOptions(grants=grants)
            )
            keys = {path: PartitionKey.of(**dict(parse_path(path))) for path in undo.moves}
            code = codes[undo.dataset]
            build = self.catalog.unlocked(
                dataset, list(keys.values()), run_id=run_id, code_version=code.code_version if code else ""
            )
            build.expected = {keys[path]: current for path, (current, _) in undo.moves.items()}
            build.generation, build.holds = undo.generation, True
            targets = {keys[path]: batch.batch_id for path, (_, batch) in undo.moves.items() if batch is not None}
            changes.append(PendingChange(build, partial(self._point, build, targets, reason)))
            if shape.store != now.store:
                leaving.append((self.store_of(replace(dataset, store=now.store)), undo.dataset))

        def within(point: Callable[[], None]) -> None:
            # As a promotion does: deployments first, and publishers wait from then on.
            deployments.lock(name for name, code in codes.items() if code is not None)
            generations.lock_current()
            self._refuse_published_since(undos)
            number = _new_plan(self.catalog.connection, {"undone": [undo.dataset for undo in undos]}, by)
            for change in changes:
                if (code := codes[change.build.dataset.name]) is not None:
                    decision = Decision(OnCodeChange.HOLD, plan=number)
                    deployments.deploy(change.build.dataset, code.code_version, code.source, decision, by=by)
            point()
            for code in codes.values():
                if code is not None and code.decision is OnCodeChange.FORWARD:
                    GoingForward(self.catalog.connection).go_forward_again(code)

        unless_locked(partial(make_current, self.catalog, changes, self.store_of, within=within, leaving=leaving))
        return run_id

    def _refuse_published_since(self, undos: Sequence[Undo]) -> None:
        """With what is current locked: raise VarveError where more was published since than was looked at."""
        published = [
            f"{undo.dataset} {path}"
            for undo in undos if undo.generation is not None
            for path in sorted(self.catalog.current(undo.dataset).keys() - undo.moves.keys() - set(undo.since))
        ]  # fmt: skip
        if published:
            raise VarveError(
                f"{some(published, limit=3)} were published meanwhile, in the generation that readers would leave. "
                f"{NOTHING_CHANGED} The same command again says what that means for them."
            )

    def _point(self, build: Build, targets: Mapping[PartitionKey, BatchId], reason: str, at: dt.datetime) -> None:
        connection, of_build = self.catalog.connection, (build.dataset.name, build.paths)
        held = connection.execute(_HELD, of_build).fetchall()
        self.catalog.repoint(build, targets, reason=reason, at=at)
        # All that was promoted goes back together, so that nothing of it is stale, and there is nothing new to hold.
        self.catalog.let_go(build)
        with connection.cursor() as cursor:
            cursor.executemany(_HOLD, [(build.dataset.name, *each) for each in held])
        if build.generation is not None:
            generations, name = Generations(self.catalog.connection), build.dataset.name
            generations.move(name, build.generation, build.batch_id.millis, [key.path for key in targets])
            generations.declare_again(name)

    def _code_before(self, undo: Undo) -> Deployment | None:
        """The deployment of the code that made what was current before; None where that code is deployed."""
        ids = {path: batch.batch_id for path, (_, batch) in undo.moves.items() if batch is not None}
        made = Generations(self.catalog.connection).made(undo.dataset, ids)
        deployments = Deployments(self.catalog.connection)
        current = deployments.current([undo.dataset]).get(undo.dataset)
        if made is None or current is None or current.code_version == made.code_version:
            return None
        earlier = [each for each in deployments.history(undo.dataset) if each.code_version == made.code_version]
        return earlier[-1] if earlier else None


def _new_plan(connection: psycopg.Connection, contents: Mapping[str, object], by: str) -> int:
    """The number of a plan that is applied with that, as deployments name one."""
    digest = blake2b(json.dumps(contents, sort_keys=True).encode(), digest_size=12).hexdigest()
    row = connection.execute(_ADD_PLAN, (digest, Jsonb(contents), by, by)).fetchone()
    assert row is not None
    return int(row[0])
