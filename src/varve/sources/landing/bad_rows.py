"""Which rows of a landing file were refused, and why: found out by reading the file once more, where a job failed.

Not here: rows that a dataset tolerates (tolerance.py).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput, some
from varve.model.partitions.key import plain
from varve.services.files import open_files
from varve.sources.formats import formats
from varve.sources.formats.file_reading import BadFile, FileSource
from varve.sources.formats.tasks import MARK
from varve.sources.landing.declared_file import blamed, key_of, reading_of, refused, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.sources.formats.checks import RowProblem

_PROBLEMS_TOLD = 5
_PROBLEMS_COUNTED = 1_000


def explain_bad_row(build: Build, error: str) -> BadInput | None:
    """The error of a Spark job as an error of file, line and column; None where it was not about a landing row."""
    marked = re.search(f"{MARK}([0-9a-f]+){MARK}", error)
    if not marked or not build.dataset.landing:
        return None
    return all_bad_rows(build.dataset, source_of(build.dataset, bytes.fromhex(marked[1]).decode()))


def all_bad_rows(dataset: Dataset, source: FileSource) -> BadInput:
    """The error with the first bad rows of a file; where there is none any more, that it changed."""
    try:
        problems = list(itertools.islice(_problems_of(dataset, source), _PROBLEMS_COUNTED))
    except BadFile as error:
        return refused(dataset, source.uri, str(error))
    except OSError as error:
        return refused(dataset, source.uri, f"it changed while it was read: {error}.")
    if not problems:
        return refused(dataset, source.uri, "it changed while it was read.")
    listed = some([problem.message(source.unit) for problem in problems], limit=_PROBLEMS_TOLD)
    return BadInput(
        f"{source.uri} ({dataset}): {listed}. {NOTHING_LOST} Ask the partner to send it again; "
        "when it arrives its partition runs by itself.",
        partitions=blamed(dataset, source.uri),
    )


def _problems_of(dataset: Dataset, source: FileSource) -> Iterator[RowProblem]:
    """All problems of a file, in order. Raises BadFile."""
    files, path = open_files(source.uri)
    key = key_of(dataset, source.uri)
    values = {} if key is None else {name: plain(value) for name, value in key.fields}
    with files.open(path, "rb") as file:
        for chunk in formats.chunks(file, source, reading_of(dataset), values):
            yield from chunk.problems
