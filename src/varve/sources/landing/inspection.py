"""Inspecting whole landing files: the declared columns, a proper end, and a hash of the content; no row is parsed.

Not here: the rows (rows.py, bad_rows.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput
from varve.services.files import open_files
from varve.services.links import refuse_link_out
from varve.sources.formats.file_reading import BadFile, FileReading, FileSource
from varve.sources.formats.formats import look
from varve.sources.formats.lines import EMPTY, refuse_unended
from varve.sources.landing.declared_file import blamed, raise_all, reading_of, refused, source_of
from varve.sources.landing.inspected import BLOCK, Inspected, new_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varve.model.build import Build
    from varve.model.dataset import Dataset

_THREADS = 8


def inspect(dataset: Dataset, uri: str) -> Inspected | None:
    """Inspect a whole file without parsing its rows; None where there is no file. Raises BadInput."""
    files, path = open_files(uri)
    refuse_link_out(dataset, uri)
    digest = new_fingerprint()
    source, reading = source_of(dataset, uri), reading_of(dataset)
    head, last, size = b"", b"", 0
    try:
        # Reading a pipe would wait for ever, and a device has no end.
        if (kind := files.info(path)["type"]) != "file":
            kind_text = "a directory" if kind == "directory" else "something else"
            raise BadInput(
                f"{uri} ({dataset}): {kind_text} lies where a file is expected. {NOTHING_LOST} Remove it.",
                partitions=blamed(dataset, uri),
            )
        with files.open(path, "rb") as file:
            while block := file.read(BLOCK):
                head, last, size = head or block, block, size + len(block)
                digest.update(block)
            _refuse_head(head, source, reading)
            file.seek(0)
            look(file, source, reading)
            if source.unit == "line" and not source.compression:
                refuse_unended(last, reading)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise BadInput(
            f"{uri} ({dataset}) may not be read: {error.strerror or error}. {NOTHING_LOST} "
            "Give the user whom Varve runs as the right to read it.",
            partitions=blamed(dataset, uri),
        ) from error
    except BadFile as error:
        raise refused(dataset, uri, str(error)) from error
    return Inspected(uri, size, digest.hexdigest())


def inspect_all(dataset: Dataset, uris: Sequence[str]) -> dict[str, Inspected | None]:
    """The result of `inspect` for each of these files. Raises BadInput with all that cannot be taken."""

    def looked_at(uri: str) -> Inspected | BadInput | None:
        try:
            return inspect(dataset, uri)
        except BadInput as error:
            return error

    with ThreadPoolExecutor(_THREADS) as pool:
        results = dict(zip(uris, pool.map(looked_at, uris), strict=True))
    raise_all([result for result in results.values() if isinstance(result, BadInput)])
    return {uri: result for uri, result in results.items() if not isinstance(result, BadInput)}


def refuse_changed(build: Build, files: Iterable[Inspected]) -> None:
    """Raise BadInput where one of these files of a build is no longer as it was inspected."""
    for file in files:
        now = inspect(build.dataset, file.uri)
        if now is None or now.fingerprint != file.fingerprint:
            raise BadInput(
                f"{file.uri} ({build.dataset}) changed while it was read. {NOTHING_LOST} "
                "Run the partition again; the arrival sensor does so by itself.",
                partitions=blamed(build.dataset, file.uri),
            )


def _refuse_head(head: bytes, source: FileSource, reading: FileReading) -> None:
    """Raise BadFile for an empty file, and for UTF-16 where UTF-8 is expected."""
    if not head:
        if source.format == "csv" and reading.header != "none":
            raise BadFile("the file is empty, without even a header line.")
        raise BadFile(EMPTY if source.unit == "line" else "the file is empty.")
    text = source.unit == "line" and not source.compression and reading.encoding.lower().replace("_", "-") == "utf-8"
    if text and head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadFile("the file is UTF-16; UTF-8 is expected.")
