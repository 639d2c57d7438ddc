"""Files that were landed into an environment, and that its promotion puts into the landing folder of production.

Each is kept with what production had in its place, so that no newer file of the partner is replaced. In the transaction
of the promotion the arrival is recorded first, and the file is put in place last: a sensor that finds the file before
the end waits for the transaction, and then finds nothing new. Where the transaction fails after all, what lay there
before is put back; where the process is killed just then, the file is there, and production takes it like any other.

Not here: reading such files in the environment (varve/dagster/environments), and the promotion
(varve/stores/environments/promoter.py).
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.model.errors import VarveError
from varve.model.partitions.texts import command_words
from varve.planning.run_requests import landing_source
from varve.services.files import is_local, open_files, renames_cheaply, sync
from varve.sources.landing import listing
from varve.sources.landing.inspected import content_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import psycopg

    from varve.model.batch import BatchId
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph

logger = logging.getLogger(__name__)
_READ = """
    select b.partition, b.inputs from varve.batch b
    join unnest(%s::text[], %s::bigint[]) as t (partition, batch_id) using (partition, batch_id) where b.dataset = %s
"""
_ARRIVED = "select uri, fingerprint from varve.arrival where dataset = %s and partition = %s"


@dataclass(frozen=True, slots=True)
class _Noted:
    """A file of an environment, and what production had in its place when it was landed.

    Attributes:
        fingerprint: the hash of its content.
        lay: the hash of the file that lay in the landing folder of production; "" where there was none.
        arrived: the fingerprint of the arrival that production had taken; "" where there was none.
    """

    fingerprint: str
    lay: str
    arrived: str


@dataclass(frozen=True, slots=True)
class _Sent:
    """A file that was put into the landing folder, by its hash; and a copy of what lay there, if anything did."""

    uri: str
    fingerprint: str
    former: Path | None


@dataclass(frozen=True)
class CorrectedFiles:
    """The corrected files of one environment.

    Attributes:
        folder: the landing folder of the environment, on the machine on which files are landed into it.
        landing: the landing folder of production, or its URI.
    """

    connection: psycopg.Connection
    graph: Graph
    environment: str
    folder: Path
    landing: str
    _sent: list[_Sent] = field(default_factory=list, init=False, repr=False, compare=False)

    def keep(self, dataset: Dataset, partition: PartitionKey, file: Path) -> None:
        """Copy a file to where the environment reads the partition, and note what production has in its place."""
        pattern = listing.pattern_of(dataset)
        # It is read by its ending: a partner who sends JSON lines corrects them by JSON lines.
        name = pattern.name_like(partition, file.name)
        target, note = self._places(dataset, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The file may be the one that was landed before, mended where it lies.
        copy = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        shutil.copyfile(file, copy)
        # One that was landed before, and perhaps under another ending; it goes when the new one is there.
        former = [self._places(dataset, other) for other in pattern.names_of(partition)]
        for _, former_note in former:
            former_note.unlink(missing_ok=True)
        copy.replace(target)
        for former_file, _ in former:
            if former_file != target:
                former_file.unlink(missing_ok=True)
        if pattern.many:
            # Which of the partition's files it is to replace, nobody has said: it is not sent.
            return
        arrived = self._arrived(dataset, partition.path)
        noted = _Noted(content_of(str(target)), content_of(self._uri(dataset, name)), arrived[1] if arrived else "")
        note.write_text(json.dumps(asdict(noted)), encoding="utf-8")

    def are_taken(self, dataset: Dataset, partitions: Iterable[PartitionKey]) -> bool:
        """Whether production had taken the very files of these partitions when they were landed here."""
        names = [name for partition in partitions for name in listing.pattern_of(dataset).names_of(partition)]
        notes = [note for name in names if (note := self._places(dataset, name)[1]).is_file()]
        noted = [_Noted(**json.loads(note.read_text(encoding="utf-8"))) for note in notes]
        return bool(noted) and all(each.fingerprint == each.lay == each.arrived for each in noted)

    def arrive(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Record, in the transaction of a promotion, that production has the files from which these batches were made.

        Raises VarveError where production has another file by now than the one that was corrected.
        """
        catalog = Catalog(self.connection)
        for dataset, partition, name, noted in self._to_send(batches):
            uri, arrived = self._uri(dataset, name), self._arrived(dataset, partition.path)
            if arrived is not None and arrived[1] == noted.fingerprint:
                continue
            if arrived is not None and arrived[1] not in {noted.arrived, noted.lay}:
                raise self._other_file(dataset, partition)
            if arrived is not None and arrived[0] != uri:
                raise VarveError(
                    f"{dataset} {partition.path}: production has {arrived[0]}, and the corrected file would lie beside "
                    f"it as {uri}. Nothing was promoted. Remove the one that is there, or declare one ending."
                )
            size = self._places(dataset, name)[0].stat().st_size
            catalog.arrived(dataset.name, partition, uri=uri, size=size, fingerprint=noted.fingerprint)

    def send(self, batches: Mapping[str, Mapping[str, BatchId]]) -> None:
        """Put the files into the landing folder, each in one step; last in the transaction of a promotion.

        Raises VarveError where another file lies there by now than the one that was corrected, or none can be written.
        """
        for dataset, partition, name, noted in self._to_send(batches):
            uri = self._uri(dataset, name)
            if (lies := content_of(uri)) == noted.fingerprint:
                continue
            if lies not in {"", noted.lay}:
                raise self._other_file(dataset, partition)
            file, note = self._places(dataset, name)
            try:
                former = _copied(uri, note.with_suffix(".former")) if lies else None
                _put(file, uri)
                self._sent.append(_Sent(uri, noted.fingerprint, former))
            except OSError as error:
                raise VarveError(
                    f"{dataset} {partition.path}: the corrected file cannot be put into the landing folder as {uri}: "
                    f"{error.strerror or error}. Nothing was promoted, and nothing is lost. Let the user whom Varve "
                    "runs as write there, then again."
                ) from error

    def take_back(self) -> None:
        """Put back what lay in the landing folder before `send`, unless something else lies there by now."""
        while self._sent:
            sent = self._sent.pop()
            try:
                if content_of(sent.uri) != sent.fingerprint:
                    continue
                if sent.former is not None:
                    _put(sent.former, sent.uri)
                else:
                    files, path = open_files(sent.uri)
                    files.rm_file(path)
            except OSError as error:
                logger.warning(
                    "%s: nothing was promoted, and the corrected file stays in the landing folder, where production "
                    "takes it: %s", sent.uri, error,
                )  # fmt: skip

    def _to_send(
        self, batches: Mapping[str, Mapping[str, BatchId]]
    ) -> Iterator[tuple[Dataset, PartitionKey, str, _Noted]]:
        """The noted files from which these batches were made: dataset, partition, name and note of each."""
        for dataset_name in sorted(batches):
            dataset = self.graph.datasets[dataset_name]
            if not dataset.landing or not (self.folder / dataset.db / dataset.table).is_dir():
                continue
            paths, ids = list(batches[dataset_name]), [batch.millis for batch in batches[dataset_name].values()]
            read: dict[str, list[list[str]]] = dict(
                self.connection.execute(_READ, (paths, ids, dataset_name)).fetchall()
            )
            source = landing_source(dataset)
            for path in sorted(paths):
                partition = dataset.partitioning.from_path(path)
                names = listing.pattern_of(dataset).names_of(partition)
                name = next((each for each in names if self._places(dataset, each)[1].exists()), None)
                if name is None:
                    continue
                file, note = self._places(dataset, name)
                noted = _Noted(**json.loads(note.read_text(encoding="utf-8")))
                if [source, path, noted.fingerprint] not in read[path]:
                    # It was landed after what is promoted was made.
                    continue
                if content_of(str(file)) != noted.fingerprint:
                    raise VarveError(
                        f"{dataset} {path}: {file} has changed since it was landed into environment "
                        f"{self.environment}. Nothing was promoted. Land it again: "
                        f"varve env land {self.environment} {dataset} FILE {command_words(path)}"
                    )
                yield dataset, partition, name, noted

    def _places(self, dataset: Dataset, name: str) -> tuple[Path, Path]:
        """Where a file lies in the environment, and the note beside it, which no listing shows."""
        file = self.folder / dataset.db / dataset.table / name
        return file, file.with_name(f".{file.name}.replaces")

    def _uri(self, dataset: Dataset, name: str) -> str:
        return f"{listing.folder_of(self.landing, dataset)}/{name}"

    def _arrived(self, dataset: Dataset, path: str) -> tuple[str, str] | None:
        row = self.connection.execute(_ARRIVED, (dataset.name, path)).fetchone()
        return None if row is None else (row[0], row[1])

    def _other_file(self, dataset: Dataset, partition: PartitionKey) -> VarveError:
        return VarveError(
            f"{dataset} {partition.path}: production has another file by now than when the corrected one was landed "
            f"into environment {self.environment}. Nothing was promoted, and no file was replaced. Correct the newer "
            f"one, and land it again: varve env land {self.environment} {dataset} FILE "
            f"{command_words(partition.path)}"
        )


def _copied(uri: str, target: Path) -> Path:
    files, path = open_files(uri)
    files.get_file(path, str(target))
    return target


def _put(file: Path, uri: str) -> None:
    """Copy a file of this machine to a landing folder, where it is seen whole or not at all."""
    files, path = open_files(uri)
    folder, _, name = path.rpartition("/")
    files.makedirs(folder, exist_ok=True)
    if not renames_cheaply(uri):
        # An object is there when all of it is.
        files.put_file(str(file), path)
        return
    # Hidden, and with an ending that says that it is being written.
    hidden = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}.part"
    try:
        files.put_file(str(file), hidden)
        sync(files, hidden)
        if is_local(files):
            Path(hidden).replace(path)
        else:
            files.mv(hidden, path)
    except BaseException:
        if files.exists(hidden):
            files.rm_file(hidden)
        raise
    sync(files, folder)
