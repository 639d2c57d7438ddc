"""Sets that data fill: reads the keys of batches that nobody has read yet, and brings Dagster's sets in line.

A tick compares which batches are current with which were read. A publish, a rollback and a kill between any two steps
leave nothing behind that the next tick would not see (docs/decisions/0006).

Not here: the queries (varve/sql/syntax/clauses/generators.py), and sets that follow other sets (sets_sensor.py).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.generations import Generations
from varve.catalog.planning.set_keys import SetKeys
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.errors import UnknownPartition, VarveError, some
from varve.model.partitions.dimension import alike_message
from varve.model.partitions.key import text_of
from varve.model.partitions.set_source import OnRemoval
from varve.services.spark import open_session
from varve.stores.frames import partition_texts, texts_of
from varve.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import dagster as dg

    from varve.dagster.partitions.dynamic_sets import PartitionSets
    from varve.model.batch import Batch
    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import DynamicDimension
    from varve.model.partitions.key import Value
    from varve.planning.graph import Graph
    from varve.services.settings import Settings

# One job of Spark reads the keys of so many batches.
BATCHES_A_JOB = 1_000
# A set is a list of partitions, not of customers of the world: each of its keys may be a run.
MOST_KEYS = 100_000
_KEY = "_varve_key"


@dataclass
class Fed:
    """What a look at the data has changed.

    Attributes:
        changes: what was changed, as texts.
        problems: by set, what is wrong with its data, and what to do.
    """

    changes: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def feed(connection: psycopg.Connection, instance: dg.DagsterInstance, graph: Graph, settings: Settings) -> Fed:
    """Bring every set that data fill in line with the current batches.

    What is wrong with one set is in the result, and the others are brought in line all the same. Raises psycopg.Error
    where the catalog cannot be reached.
    """
    fed = Fed()
    sets = sets_of(instance, graph)
    for name, dimension in sets.dimensions.items():
        source = dimension.source
        if source is None or source.dataset not in graph.datasets:
            # The file of what it reads is broken: the set stays as it is.
            continue
        keys = SetKeys(connection, name, source)
        try:
            _read(keys, dimension, graph.datasets[source.dataset], settings)
            _follow(keys, dimension, sets, fed)
        except psycopg.Error:
            raise
        except Exception as error:  # noqa: BLE001 - Spark's errors have no common class, and one set must not stop others
            fed.problems[name] = f"{source.place or name}: the set {name} was not looked at: {error}"
    return fed


def _read(keys: SetKeys, dimension: DynamicDimension, dataset: Dataset, settings: Settings) -> None:
    """Read the keys of all current batches that nobody has read yet."""
    at_once = BATCHES_A_JOB
    while unread := keys.unread(at_once):
        catalog = Catalog(keys.connection)
        partitions = [dataset.partitioning.from_path(path) for path in unread]
        current = catalog.current(dataset.name, partitions)
        batches = {path: batch for path, batch in current.items() if batch.batch_id.millis == unread.get(path)}
        if not batches:
            # Others were published meanwhile; the next tick reads those.
            return
        Generations(keys.connection).refuse_unreadable(dataset, batches.values())
        try:
            texts_by_path, refused = _keys_of(keys, dimension, dataset, list(batches.values()), settings, catalog)
        except _TooManyKeysError:
            if len(batches) == 1:
                raise
            # The same keys in many batches: fewer of them are read together.
            at_once = len(batches) // 2
            continue
        keys.record({path: unread[path] for path in batches}, texts_by_path, refused)


class _TooManyKeysError(VarveError):
    """The batches of one job have more keys, counted in each of them, than a set may have."""


def _keys_of(  # noqa: PLR0917
    keys: SetKeys,
    dimension: DynamicDimension,
    dataset: Dataset,
    batches: Sequence[Batch],
    settings: Settings,
    catalog: Catalog,
) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """The keys of these batches by partition, and the values that can be none, in words."""
    spark = open_session(settings)
    frame = open_store(dataset.store, settings, catalog, lambda: spark).read(dataset, batches)
    if keys.source.where:
        frame = frame.where(keys.source.where)
    names = dataset.partitioning.names
    key = " ".join(("(", keys.source.expression, ") AS", _KEY))
    rows = frame.selectExpr("*", key).select(*partition_texts(names), _KEY).distinct()
    values = rows.limit(MOST_KEYS + 1).collect()
    if len(values) > MOST_KEYS:
        raise _TooManyKeysError(
            f"{keys.source} gives more than {MOST_KEYS:,} keys, each of which would be a partition. Nothing was added. "
            "Group them, or read fewer rows."
        )
    keys_of_batches = [dataset.partitioning.from_path(batch.partition) for batch in batches]
    path_of = {texts_of(key): key.path for key in keys_of_batches}
    texts_by_path: dict[str, list[str]] = defaultdict(list)
    refused: dict[str, list[str]] = defaultdict(list)
    for *partition, value in values:
        path = path_of[tuple(partition)]
        try:
            texts_by_path[path].append(_key_text(dimension, value))
        except (UnknownPartition, VarveError) as error:
            refused[path].append(str(error))
    return texts_by_path, refused


def _key_text(dimension: DynamicDimension, value: object) -> str:
    """The spelling of a key. Raises VarveError for a value that can be none."""
    if value is None:
        raise VarveError("NULL is no key; write WHERE ... IS NOT NULL where rows without one do not count.")
    if type(value) is not dimension.value_type:
        raise VarveError(
            f"{value!r} is of {type(value).__name__}, and the keys of {dimension.name} are of "
            f"{dimension.value_type.__name__}; write CAST(... AS ...)."
        )
    text = text_of(value)  # type: ignore[arg-type]
    if dimension.parse(text) != value:
        raise VarveError(f"{value!r} is no key of {dimension.name}: it is read back as another one.")
    return text


def _parsed_keys(dimension: DynamicDimension, texts: Iterable[str]) -> set[Value]:
    """The keys that these texts spell; a set whose keys were of another type before has others too."""
    parsed = set()
    for text in texts:
        with contextlib.suppress(UnknownPartition):
            parsed.add(dimension.parse(text))
    return parsed


def _follow(keys: SetKeys, dimension: DynamicDimension, sets: PartitionSets, fed: Fed) -> None:
    """Bring Dagster's set in line with what the current batches have."""
    current = keys.current()
    read = [dimension.parse(text) for text in current.keys]
    # Those that are in the set stay in it; a new one that no metastore could tell from them is told.
    too_like = sets.too_like(dimension, sorted(read))
    wanted = sorted(set(read) - set(too_like))
    if new := sets.add(dimension, wanted):
        fed.changes.append(f"{keys.set_name}: {some([text_of(key) for key in new], limit=3)} added")
    # As long as a batch is not read, a key that it has would seem to be gone.
    if keys.source.on_removal is OnRemoval.WITHDRAW and not current.unread:
        members = set(sets.using(dimension).members()[keys.set_name])
        gone = sorted((_parsed_keys(dimension, keys.ever()) - set(wanted)) & members)
        if gone:
            sets.remove(dimension, gone)
            fed.changes.append(f"{keys.set_name}: {some([text_of(key) for key in gone], limit=3)} taken out")
    for key, other in too_like.items():
        fed.problems[keys.set_name] = (
            f"{keys.source.place or keys.set_name}: {alike_message(dimension.name, key, other)}"
        )
    if current.refused:
        fed.problems[keys.set_name] = (
            f"{keys.source.place or keys.set_name}: {keys.source.dataset} has values that are no keys of the set "
            f"{keys.set_name}, and get no partition: {some(list(current.refused), limit=3)}"
        )
