"""A look at everything that arrives from others: files of the landing folder, and external tables.

An error of one dataset is noted under its name, and does not keep the other datasets from being looked at.

Not here: the decision what to do with a file (varve/planning/arrivals/arrivals.py), and which runs become due
(reconciling.py).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.parts import Parts
from varve.catalog.rejected import LeftOut, RejectedArrivals
from varve.model.errors import BadInput
from varve.planning.arrivals.arrivals import Rejected, Sorter, declaration_of, stamp_of
from varve.planning.arrivals.landing_file import LandingFile, RejectionKind
from varve.planning.run_requests import landing_source
from varve.services.outages import is_server_lost
from varve.services.spark import open_session
from varve.sources.external.read import open_external_table
from varve.sources.landing.inspected import Inspected, content_of
from varve.sources.landing.inspection import inspect
from varve.sources.landing.landing import Landing

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.catalog.catalog import Catalog
    from varve.model.batch import TakenFile
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.services.settings import Settings

# So many rejected arrivals of a kind are logged one by one: a changed pattern rejects all that ever came.
_LOGGED = 10


@dataclass
class ArrivalLook:
    """One look at the datasets that arrive; each gets its share of the time budget.

    Attributes:
        cursor: by dataset name, when the dataset was last looked at, in epoch seconds. It only decides which dataset
            comes first: what was taken is in the catalog.
        left_out: the datasets that could not be looked at.
    """

    catalog: Catalog
    settings: Settings
    members: Members
    log: logging.Logger
    cursor: dict[str, float] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def at(self, datasets: Sequence[Dataset]) -> str:
        """Look at the datasets until the time budget is used up, and return the new cursor.

        Raises psycopg.Error where the catalog cannot be reached: then errors cannot be noted either.
        """
        stop = time.monotonic() + self.settings.sensor_seconds
        # The dataset whose last look is longest ago comes first: a slow dataset must not keep the others waiting. It
        # comes last at the next look, where it has all the time that they leave.
        by_last_look = sorted(datasets, key=lambda dataset: self.cursor.get(dataset.name, 0.0))
        for position, dataset in enumerate(by_last_look):
            now = time.monotonic()
            if now >= stop:
                break
            share = (stop - now) / (len(by_last_look) - position)
            try:
                if dataset.external is not None:
                    self._take_external(dataset)
                else:
                    self._take_files(dataset, share)
            except psycopg.Error:
                if self.catalog.connection.closed or self.catalog.connection.broken:
                    raise
                self._note_failure(dataset)
            except Exception:  # noqa: BLE001 - a defect of one dataset must not keep the files of all others waiting
                self._note_failure(dataset)
            else:
                self.cursor[dataset.name] = time.time()
        names = {dataset.name for dataset in datasets}
        return cursor_text({name: looked_at for name, looked_at in self.cursor.items() if name in names})

    def _note_failure(self, dataset: Dataset) -> None:
        """Note that a dataset could not be looked at; it comes last at the next look."""
        import sys

        error = sys.exception()
        reason = str(error) or type(error).__name__
        self.cursor[dataset.name] = time.time()
        self.left_out.append(LeftOut(dataset.name, "look", reason))
        source = dataset.external or "its landing folder"
        self.log.error("%s: %s was not looked at: %s", dataset, source, reason, exc_info=error)

    def _take_files(self, dataset: Dataset, seconds: float) -> None:
        """Take the files of one dataset, for so long after its folder was listed, and of one partition at least.

        A folder may take longer to list than the share of its dataset: it would never get any further.
        """
        rejections, declared = RejectedArrivals(self.catalog.connection), declaration_of(dataset)
        rejected_before, arrived_files = rejections.of(dataset.name), self.catalog.arrived_files(dataset.name)
        landing, parts = Landing(self.settings.landing), Parts(self.catalog.connection)
        open_partitions = parts.open_again(dataset.name) if dataset.incremental is not None else set[str]()
        sorter = Sorter(
            dataset,
            arrived_files,
            rejected_before,
            self.members,
            time.time(),
            self.settings.settle_seconds,
            declared,
            open_partitions,
        )
        look = sorter.sort(landing.files(dataset))
        stop = time.monotonic() + seconds
        taken_files = self._taken_files(dataset, [key for key, _ in look.take])
        # Of all partitions at once, and only where a file cannot be read: a partner may send thousands of those.
        fingerprints = cache(partial(self.catalog.arrivals, dataset.name))
        for position, (key, files) in enumerate(look.take):
            if position and time.monotonic() > stop:
                # The files were not inspected in this look, so that earlier rejections of them stay.
                look.rejected |= {file.uri: rejected_before[file.uri] for file in files if file.uri in rejected_before}
                continue
            inspected, rejected = _inspected_files(
                sorter, dataset, key, files, taken_files.get(key.path, {}), arrived=fingerprints
            )
            look.rejected |= rejected
            if rejected:
                look.standing.discard(key.path)
            elif len(inspected) == len(files):
                joined = landing.joined(dataset, inspected)
                self.catalog.arrived(
                    dataset.name, key, uri=joined.uri, size=joined.size, fingerprint=joined.fingerprint,
                    stamp=stamp_of(files),
                )  # fmt: skip
        # Files that are gone, or have changed since, are not run any more; the batches made from them stay.
        departed = [path for path in arrived_files if path not in look.standing]
        self.catalog.departed_unused(dataset.name, departed, landing_source(dataset))
        self._write_rejected(rejections, dataset, rejected_before, look.rejected)

    def _taken_files(self, dataset: Dataset, keys: Sequence[PartitionKey]) -> dict[str, dict[str, TakenFile]]:
        """Return, by partition path and file token, the files that growing partitions already consist of."""
        if dataset.incremental is None or not keys:
            return {}
        batches = list(self.catalog.current(dataset.name, keys).values())
        parts = Parts(self.catalog.connection).with_files(dataset.name, batches)
        return {
            path: {file.token: file for part in batch_parts for file in part.files if file.token}
            for path, batch_parts in parts.items()
        }

    def _take_external(self, dataset: Dataset) -> None:
        """Note in the catalog which partitions an external table has now, and which of them changed."""
        assert dataset.external is not None
        sessions: list[SparkSession] = []

        def spark() -> SparkSession:
            sessions.append(open_session(self.settings))
            return sessions[-1]

        try:
            listing = open_external_table(self.settings, dataset.external, spark).listed(dataset)
        except Exception as error:
            if is_server_lost(error):
                # The code server may outlive its Spark server: the next look then opens a new session.
                for session in sessions:
                    session.stop()
            raise
        rejections = RejectedArrivals(self.catalog.connection)
        rejected_before, rejected = rejections.of(dataset.name), dict[str, Rejected]()
        sorter = Sorter(dataset, {}, rejected_before, self.members, time.time(), 0.0, declaration_of(dataset))
        for name, reason in listing.strays.items():
            uri = f"{dataset.external}/{name}"
            rejected[uri] = sorter.rejected(LandingFile(0.0, name, uri, 0), RejectionKind.NO_KEY, reason)
        known_tokens = self.catalog.arrivals(dataset.name)
        for partition, listed_partition in listing.partitions.items():
            uri = f"{dataset.external}/{partition.path}"
            # A partition that was taken before stays, even if its window is over by now.
            if partition.path not in known_tokens and (absence := sorter.not_there(partition)) is not None:
                file = LandingFile(0.0, partition.path, uri, listed_partition.size, listed_partition.token)
                rejected[uri] = sorter.rejected(file, absence[0], absence[1], partition, absence[2])
            elif known_tokens.pop(partition.path, None) != listed_partition.token:
                self.catalog.arrived(
                    dataset.name, partition, uri=uri, size=listed_partition.size, fingerprint=listed_partition.token
                )
        if known_tokens:
            self.catalog.departed(dataset.name, list(known_tokens))
        self._write_rejected(rejections, dataset, rejected_before, rejected)

    def _write_rejected(
        self,
        rejections: RejectedArrivals,
        dataset: Dataset,
        rejected_before: dict[str, Rejected],
        rejected: dict[str, Rejected],
    ) -> None:
        """Write the rejected arrivals to the catalog, and log those that are new."""
        rejections.write(dataset.name, rejected_before, rejected)
        new = defaultdict[RejectionKind, list[Rejected]](list)
        for uri, arrival in rejected.items():
            if uri not in rejected_before or rejected_before[uri].kind is not arrival.kind:
                new[arrival.kind].append(arrival)
        new.pop(RejectionKind.SETTLING, None)
        for kind, arrivals in new.items():
            for arrival in arrivals[:_LOGGED]:
                self.log.warning("%s: %s is not taken (%s): %s", dataset, arrival.uri, kind, arrival.reason)
            if more := max(0, len(arrivals) - _LOGGED):
                self.log.warning("%s: %d more are not taken (%s); varve status lists them", dataset, more, kind)


def _inspected_files(
    sorter: Sorter,
    dataset: Dataset,
    key: PartitionKey,
    files: Sequence[LandingFile],
    taken_files: Mapping[str, TakenFile],
    *,
    arrived: Callable[[], Mapping[str, str]],
) -> tuple[list[Inspected], dict[str, Rejected]]:
    """Return the inspected files of a partition, without those that are gone, and the rejected files by URI.

    Files in `taken_files`, by token, were inspected by an earlier look. A file with the fingerprint that has `arrived`
    of its partition was taken before, by an earlier declaration, and has only been written again.
    """
    inspected, rejected = [], dict[str, Rejected]()
    for file in files:
        if (taken_file := taken_files.get(file.token)) is not None:
            inspected.append(Inspected(file.uri, taken_file.size, taken_file.fingerprint))
            continue
        try:
            inspected_file = inspect(dataset, file.uri)
        except BadInput as error:
            # Rights are mended without a change of the file: it is looked at again each time.
            kind = RejectionKind.UNREADABLE if isinstance(error.__cause__, OSError) else RejectionKind.CONTENT
            before = arrived().get(key.path) if kind is RejectionKind.CONTENT and len(files) == 1 else None
            if before and content_of(file.uri) == before:
                inspected.append(Inspected(file.uri, file.size, before))
                continue
            rejected[file.uri] = sorter.rejected(file, kind, str(error), key)
        except Exception as error:  # noqa: BLE001 - an odd file must not keep all later files of its dataset waiting
            rejected[file.uri] = sorter.rejected(
                file, RejectionKind.UNREADABLE, f"{type(error).__name__}: {error}", key
            )
        else:
            inspected += [inspected_file] if inspected_file is not None else []
    if rejected:
        first_rejected = next(file for file in files if file.uri in rejected)
        rejected |= {file.uri: sorter.beside(file, first_rejected, key) for file in files if file.uri not in rejected}
    return inspected, rejected


def cursor_of(text: str | None) -> dict[str, float]:
    """Return when each dataset was last looked at; empty for a cursor that is damaged or of an older version."""
    try:
        looked_at = json.loads(text or "{}")
    except ValueError:
        return {}
    return (
        {name: instant for name, instant in looked_at.items() if isinstance(instant, float)}
        if isinstance(looked_at, dict)
        else {}
    )


def cursor_text(cursor: dict[str, float]) -> str:
    """Return the cursor as the text that Dagster stores."""
    return json.dumps(cursor)
