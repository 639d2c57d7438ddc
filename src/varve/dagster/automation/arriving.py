"""A look at everything that arrives from others: files of the landing folder, and tables of others.

One dataset's trouble is its own: whatever goes wrong in looking at it is noted under its name, and the others are
looked at all the same.

Not here: what to do with a file (varve/planning/arrivals/arrivals.py), and what follows from what has arrived
(reconciling.py).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.parts import Parts
from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.model.errors import BadInput
from varve.planning.arrivals.arrivals import LandingFile, Rejected, RejectionKind, Sorter, stamp_of
from varve.planning.run_requests import landing_source
from varve.services.spark import lost, open_session
from varve.sources.external.tables import open_outside
from varve.sources.landing.inspected import Inspected
from varve.sources.landing.landing import Landing, inspect

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.model.batch import TakenFile
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings


@dataclass
class ArrivalLook:
    """One look at the datasets that arrive, of which each gets its share of the time.

    Attributes:
        cursor: when each dataset was last looked at to its end, by name. It only says whose turn is first: what has
            been taken and what has not is in the catalog.
        left_out: the datasets that could not be looked at.
    """

    catalog: Catalog
    settings: Settings
    members: Members
    log: logging.Logger
    cursor: dict[str, float] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def at(self, datasets: Sequence[Dataset]) -> str:
        """Look at all of them as far as the time budget reaches; the new cursor.

        Raises psycopg.Error where the catalog cannot be reached: then nothing can be noted either.
        """
        stop = time.monotonic() + self.settings.sensor_seconds
        # Those that were not looked at for longest come first: a slow one must not keep the others from their turn.
        waiting = sorted(datasets, key=lambda dataset: self.cursor.get(dataset.name, 0.0))
        for place, dataset in enumerate(waiting):
            now = time.monotonic()
            if now >= stop:
                break
            share = now + (stop - now) / (len(waiting) - place)
            try:
                done = self._outside(dataset) if dataset.outside is not None else self._landed(dataset, share)
            except psycopg.Error:
                if self.catalog.connection.closed or self.catalog.connection.broken:
                    raise
                self._failed(dataset)
            except Exception:  # noqa: BLE001 - a defect of one dataset must not keep the files of all others waiting
                self._failed(dataset)
            else:
                if done:
                    self.cursor[dataset.name] = time.time()
        names = {dataset.name for dataset in datasets}
        return cursor_text({name: at for name, at in self.cursor.items() if name in names})

    def _failed(self, dataset: Dataset) -> None:
        """Note that a dataset could not be looked at; its next look is the last of all."""
        import sys

        error = sys.exception()
        reason = str(error) or type(error).__name__
        self.cursor[dataset.name] = time.time()
        self.left_out.append(LeftOut(dataset.name, "look", reason))
        where = dataset.outside or "its landing folder"
        self.log.error("%s: %s was not looked at: %s", dataset, where, reason, exc_info=error)

    def _landed(self, dataset: Dataset, stop: float) -> bool:
        """Take the files of one dataset, until the time is over; whether that was all of them."""
        rejections, declared = RejectedArrivals(self.catalog.connection), declaration_of(dataset)
        before, arrived = rejections.of(dataset.name), self.catalog.arrived_files(dataset.name)
        landing, parts = Landing(self.settings.landing), Parts(self.catalog.connection)
        opened = parts.open_again(dataset.name) if dataset.incremental is not None else set[str]()
        sorter = Sorter(
            dataset, arrived, before, self.members, time.time(), self.settings.settle_seconds, declared, opened
        )
        look = sorter.sort(landing.files(dataset))
        done, known = True, self._known(dataset, [key for key, _ in look.take])
        for key, files in look.take:
            if time.monotonic() > stop:
                done = False
                # They were not looked into, and are what they were.
                look.rejected |= {file.uri: before[file.uri] for file in files if file.uri in before}
                continue
            whole, bad = _looked_into(sorter, dataset, key, files, known.get(key.path, {}))
            look.rejected |= bad
            if bad:
                look.standing.discard(key.path)
            elif len(whole) == len(files):
                found = landing.joined(dataset, whole)
                self.catalog.arrived(
                    dataset.name, key, uri=found.uri, size=found.size, fingerprint=found.fingerprint,
                    stamp=stamp_of(files),
                )  # fmt: skip
        # What is gone, or is not any more what was taken, is not to be run; what was made of it stays.
        gone = [path for path in arrived if path not in look.standing]
        self.catalog.departed_unused(dataset.name, gone, landing_source(dataset))
        self._write(rejections, dataset, before, look.rejected)
        return done

    def _known(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> dict[str, dict[str, TakenFile]]:
        """By partition and token the files of which the batches of partitions that grow consist already."""
        if dataset.incremental is None or not keys:
            return {}
        batches = list(self.catalog.current(dataset.name, keys).values())
        parts = Parts(self.catalog.connection).with_files(dataset.name, batches)
        return {
            path: {file.token: file for part in found for file in part.files if file.token}
            for path, found in parts.items()
        }

    def _outside(self, dataset: Dataset) -> bool:
        """Note which partitions a table of others has now, and which of them changed."""
        assert dataset.outside is not None
        sessions: list[SparkSession] = []

        def spark() -> SparkSession:
            sessions.append(open_session(self.settings))
            return sessions[-1]

        try:
            found = open_outside(self.settings, dataset.outside, spark).listed(dataset)
        except Exception as error:
            if lost(error):
                # A code server lives longer than Spark: the next look opens a session anew.
                for session in sessions:
                    session.stop()
            raise
        rejections = RejectedArrivals(self.catalog.connection)
        before, rejected = rejections.of(dataset.name), dict[str, Rejected]()
        sorter = Sorter(dataset, {}, before, self.members, time.time(), 0.0, declaration_of(dataset))
        for text in found.strays:
            uri = f"{dataset.outside}/{text}"
            stray = LandingFile(0.0, text, uri, 0)
            rejected[uri] = sorter.rejected(stray, RejectionKind.NO_KEY, f"{text} is no partition of {dataset}")
        known = self.catalog.arrivals(dataset.name)
        for partition, listed in found.partitions.items():
            uri = f"{dataset.outside}/{partition.path}"
            # A partition that was taken stays, whatever its window is by now.
            if partition.path not in known and (why := sorter.not_there(partition)) is not None:
                file = LandingFile(0.0, partition.path, uri, listed.size, listed.token)
                rejected[uri] = sorter.rejected(file, why[0], why[1], partition, why[2])
            elif known.pop(partition.path, None) != listed.token:
                self.catalog.arrived(dataset.name, partition, uri=uri, size=listed.size, fingerprint=listed.token)
        if known:
            self.catalog.departed(dataset.name, list(known))
        self._write(rejections, dataset, before, rejected)
        return True

    def _write(
        self,
        rejections: RejectedArrivals,
        dataset: Dataset,
        before: dict[str, Rejected],
        rejected: dict[str, Rejected],
    ) -> None:
        """Keep what is not taken, and say once what is new of it."""
        rejections.write(dataset.name, before, rejected)
        for uri, one in rejected.items():
            if one.kind is not RejectionKind.SETTLING and (uri not in before or before[uri].kind is not one.kind):
                self.log.warning("%s: %s is not taken (%s): %s", dataset, uri, one.kind, one.reason)


def _looked_into(
    sorter: Sorter, dataset: Dataset, key: PartitionKey, files: Sequence[LandingFile], known: Mapping[str, TakenFile]
) -> tuple[list[Inspected], dict[str, Rejected]]:
    """What is in the files of a partition, without those that have gone; and, by uri, what is not taken of them.

    Those that are known by their tokens were looked into before.
    """
    whole, bad = [], dict[str, Rejected]()
    for file in files:
        if (taken := known.get(file.token)) is not None:
            whole.append(Inspected(file.uri, taken.size, taken.fingerprint))
            continue
        try:
            found = inspect(dataset, file.uri)
        except BadInput as error:
            bad[file.uri] = sorter.rejected(file, RejectionKind.CONTENT, str(error), key)
        except (OSError, ValueError) as error:
            bad[file.uri] = sorter.rejected(file, RejectionKind.UNREADABLE, f"{type(error).__name__}: {error}", key)
        else:
            whole += [found] if found is not None else []
    if bad:
        first = next(file for file in files if file.uri in bad)
        bad |= {file.uri: sorter.beside(file, first, key) for file in files if file.uri not in bad}
    return whole, bad


def cursor_of(text: str | None) -> dict[str, float]:
    """When each dataset was last looked at, from a cursor; one of an older Varve, or a damaged one, says nothing."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {name: at for name, at in found.items() if isinstance(at, float)} if isinstance(found, dict) else {}


def cursor_text(cursor: dict[str, float]) -> str:
    """The cursor of these looks."""
    return json.dumps(cursor)


def declaration_of(dataset: Dataset) -> str:
    """What stands for all that decides whether a file can be taken."""
    return hashlib.blake2b(repr(dataset).encode(), digest_size=8).hexdigest()
