"""Moves many partitions of a Hive table in one call of a deployed metastore's own protocol.

Spark SQL moves one partition with each statement (0.1 s), the metastore a thousand in one call (2 s, all or none).

Not here: the embedded metastore, which only its own JVM may open, and what Spark is asked (lake/projection.py).
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

# One call changes so many partitions, in one transaction of the metastore.
AT_ONCE = 1_000
_TIMEOUT_MILLISECONDS = 60_000
_PORT = 9_083
# The scheme with the authority, the authority alone, and the path.
_FOLDER = r"((?:[A-Za-z][\w+.-]*:(?://([^/]*))?)?)(/.*)"
# Otherwise the metastore would list the files of every folder.
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


class MetastoreUnusable(Exception):
    """The metastore does not answer in its own protocol; Spark SQL may still reach it."""


def move(uris: str, dataset: Dataset, batches: Sequence[Batch]) -> list[Batch]:
    """Point existing partitions at the folders of these batches. Returns the batches of those that exist.

    Raises MetastoreUnusable where none of the servers of `hive.metastore.uris` answers, for example because it wants
    Kerberos, which is not supported here.
    """
    from pymetastore.hive_metastore.ttypes import EnvironmentContext

    moved: list[Batch] = []
    with _client(uris) as client:
        for start in range(0, len(batches), AT_ONCE):
            wanted = {batch.partition: batch for batch in batches[start : start + AT_ONCE]}
            partitions = client.get_partitions_by_names(dataset.db, dataset.table, list(wanted))
            names = _names(dataset, partitions)
            changed = []
            for name, partition in zip(names, partitions, strict=True):
                location = _location_of(partition.sd.location, wanted[name]) if name in wanted else None
                if location is not None:
                    partition.sd.location = location
                    changed.append((partition, wanted[name]))
            if changed:
                client.alter_partitions_with_environment_context(
                    dataset.db,
                    dataset.table,
                    [partition for partition, _ in changed],
                    EnvironmentContext(_NO_STATISTICS),
                )
            moved += [batch for _, batch in changed]
    return moved


def locations(uris: str, dataset: Dataset) -> dict[str, str]:
    """The location of every partition of the table, by the catalog's spelling. Raises MetastoreUnusable."""
    with _client(uris) as client:
        partitions = client.get_partitions(dataset.db, dataset.table, -1)
    return dict(zip(_names(dataset, partitions), [partition.sd.location for partition in partitions], strict=True))


def partitions(uris: str, db: str, table: str) -> tuple[list[str], list[tuple[list[str], str]]]:
    """The partition columns of any table, and the values and location of each of its partitions.

    Raises MetastoreUnusable.
    """
    with _client(uris) as client:
        names = [column.name for column in client.get_table(db, table).partitionKeys]
        return names, [
            (list(partition.values), partition.sd.location) for partition in client.get_partitions(db, table, -1)
        ]


def _names(dataset: Dataset, partitions: Sequence[Any]) -> list[str]:
    from varve.model.partitions.key import escape

    columns = dataset.partitioning.names
    return [
        "/".join(f"{name}={escape(value)}" for name, value in zip(columns, partition.values, strict=True))
        for partition in partitions
    ]


def _location_of(location: str, batch: Batch) -> str | None:
    """The batch's folder, written with the scheme and authority that Spark gave the partition's present location.

    None where the present location is no folder of a batch of the partition in the same lake, as that of another
    deployment is which shares the metastore: Spark SQL then sets the whole location.
    """
    present, batch_folder = re.fullmatch(rf"{_FOLDER}/batch_id=\d+", location), re.fullmatch(_FOLDER, batch.location)
    assert batch_folder is not None, "a lake has a folder or a URI"
    if present is None or f"{present[3]}/{batch.batch_id.folder}" != batch_folder[3]:
        return None
    if batch_folder[2] and batch_folder[2] != present[2]:
        return None
    return f"{present[1]}{batch_folder[3]}"


@contextlib.contextmanager
def _client(uris: str) -> Iterator[Any]:
    from pymetastore.hive_metastore.ThriftHiveMetastore import Client
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.Thrift import TException
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TTransport import TBufferedTransport

    failures = []
    for uri in (text.strip() for text in uris.split(",")):
        parsed = urlsplit(uri)
        socket = TSocket(parsed.hostname, parsed.port or _PORT)
        socket.setTimeout(_TIMEOUT_MILLISECONDS)
        transport = TBufferedTransport(socket)
        try:
            transport.open()
        except TException as error:
            failures.append(f"{uri}: {error}")
            continue
        try:
            yield Client(TBinaryProtocol(transport))
        except TException as error:
            raise MetastoreUnusable(f"{uri}: {error}") from error
        finally:
            transport.close()
        return
    raise MetastoreUnusable("; ".join(failures))
