"""The landing folder: which files of partners a run reads into which partitions. The files are never changed.

Not here: which files to look at when (varve/planning/arrivals/arrivals.py), which there are (listing.py), whether one
is whole (inspection.py), and its rows (rows.py, bad_rows.py).
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from varve.model.batch import Input
from varve.model.errors import NOTHING_LOST, MissingUpstream, some
from varve.planning.run_requests import landing_source
from varve.sources.landing import listing
from varve.sources.landing.growth import Intake
from varve.sources.landing.inspected import Inspected
from varve.sources.landing.inspection import inspect, inspect_all, refuse_changed
from varve.sources.landing.rows import frame_of
from varve.sources.landing.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.landing.growth import Growth
    from varve.model.partitions.key import PartitionKey
    from varve.planning.arrivals.landing_file import LandingFile
    from varve.stores.open_build import OpenBuild

# Fewer bytes are read in this process: a Spark job with Python workers costs a second before its first row.
_BYTES_FOR_SPARK = 1 << 20
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Landing:
    """The landing folder under one root (a local folder or a URI).

    Attributes:
        settle_seconds: in partitions with several files, how long a file must be unchanged before it is taken.
        bytes_for_spark: with more bytes, Spark's workers read the files, else this process does.
    """

    root: str
    settle_seconds: float = 0.0
    bytes_for_spark: int = _BYTES_FOR_SPARK

    def folder(self, dataset: Dataset) -> str:
        """The folder in which the files of a dataset arrive."""
        return listing.folder_of(self.root, dataset)

    def uri(self, dataset: Dataset, key: str) -> str:
        """The URI of the file of a partition, whose key is given in Dagster's spelling."""
        pattern = listing.pattern_of(dataset)
        return f"{self.folder(dataset)}/{pattern.name(dataset.partitioning.from_dagster(key))}"

    def files(self, dataset: Dataset) -> Iterator[LandingFile]:
        """All files in the folder of a dataset that are not hidden.

        Each has either the partition to which it belongs, or the reason for which it cannot be taken.
        """
        return listing.listed(dataset, self.folder(dataset))

    def joined(self, dataset: Dataset, whole: Sequence[Inspected]) -> Inspected:
        """The files of one partition as one `Inspected`, with the total size and a common fingerprint."""
        uri = whole[0].uri if len(whole) == 1 else f"{whole[0].uri} and {len(whole) - 1} more"
        return Inspected(uri, sum(file.size for file in whole), self._fingerprint(dataset, whole))

    def read(self, opened: OpenBuild, spark: SparkSession, *, reuse_allowed: bool = False) -> DataFrame:
        """The files of the build's partitions as typed rows with their partition columns, recorded in the trace.

        Of partitions that grow only the new files are read, where the rows of the batch before can be kept; for
        `reuse_allowed` see `growth.Intake`.

        Raises MissingUpstream and BadInput for errors of whole files. A bad row fails the Spark job that reads it;
        `bad_rows.explain_bad_row` then finds the line.
        """
        build = opened.build
        parts, unsettled = self._files_by_partition(build)
        if build.dataset.incremental is not None:
            intake = Intake(opened, self.folder(build.dataset), partial(inspect_all, build.dataset), reuse_allowed)
            whole = intake.taken(parts, {file.uri for file in unsettled})
            self._refuse_missing(build, [key for key in build.partitions if not whole[key]])
            files_to_read = {key: _files_read(build.growth[key], files) for key, files in whole.items()}
        else:
            inspected = inspect_all(build.dataset, [file.uri for files in parts.values() for file in files])
            results = {key: [inspected[file.uri] for file in files] for key, files in parts.items()}
            whole = {key: [file for file in files if file is not None] for key, files in results.items()}
            self._refuse_missing(build, [key for key in build.partitions if not whole[key] or None in results[key]])
            files_to_read = whole
        for key, files in whole.items():
            version = self._fingerprint(build.dataset, files)
            build.reads(key, Input(landing_source(build.dataset), key.path, version))
        opened.pre_publish_checks.append(
            lambda: refuse_changed(build, [file for files in files_to_read.values() for file in files])
        )
        tolerance = Tolerance.of(build.dataset)
        frame = frame_of(spark, build.dataset, files_to_read, tolerance, bytes_for_spark=self.bytes_for_spark)
        opened.rejected_rows = tolerance.table() if tolerance is not None else None
        return frame

    def _files_by_partition(self, build: Build) -> tuple[dict[PartitionKey, list[LandingFile]], list[LandingFile]]:
        """The files of each partition, as far as they are there, and the files that are still being written."""
        dataset = build.dataset
        key_of_text = {dataset.partitioning.to_dagster(key): key for key in build.partitions}
        # Where a partition has a single file, it is checked for changes before the publish instead.
        many = listing.pattern_of(dataset).many
        deadline = time.monotonic() + 2 * self.settle_seconds
        while True:
            listed = listing.listed(dataset, self.folder(dataset), build.partitions)
            files = [file for file in listed if file.key in key_of_text and not file.problem and not file.temporary]
            now = time.time()
            unsettled = [file for file in files if many and listing.is_unsettled(file, self.settle_seconds, now)]
            # A file that is being sent again must not be missing from the batch: wait for it, but not for ever.
            if not unsettled or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        files_by_key: dict[str, list[LandingFile]] = {}
        for file in sorted(set(files).difference(unsettled), key=lambda file: file.uri):
            files_by_key.setdefault(file.key, []).append(file)
        return {key: files_by_key.get(text, []) for text, key in key_of_text.items()}, unsettled

    def _refuse_missing(self, build: Build, missing: Sequence[PartitionKey]) -> None:
        if missing:
            uris = [self.uri(build.dataset, build.dataset.partitioning.to_dagster(key)) for key in missing]
            if not listing.pattern_of(build.dataset).many:
                for uri in uris:
                    # It may be there without being a readable file; then this raises BadInput.
                    inspect(build.dataset, uri)
            raise MissingUpstream(
                f"{build.dataset}: no landing file {some(uris, limit=3)}. {NOTHING_LOST} "
                "Wait for the partner to send it, or choose a partition that has one.",
                partitions=[key.path for key in missing],
            )

    def _fingerprint(self, dataset: Dataset, files: Sequence[Inspected]) -> str:
        """The fingerprint of one file, or a hash of names and contents where a partition may have several files."""
        if not listing.pattern_of(dataset).many:
            return files[0].fingerprint
        digest = hashlib.blake2b(digest_size=16)
        for file in sorted(files, key=lambda inspected: inspected.uri):
            name = file.uri.partition(f"/{dataset.db}/{dataset.table}/")[2]
            digest.update(f"{name}\0{file.fingerprint}\n".encode())
        return digest.hexdigest()


def _files_read(growth: Growth, files: Sequence[Inspected]) -> list[Inspected]:
    """The files of a partition that a run reads: the last ones of `files`, after the ones whose rows it keeps."""
    return [] if growth.fold else list(files[len(files) - len(growth.files) :])
