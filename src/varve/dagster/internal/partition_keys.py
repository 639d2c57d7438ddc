"""The partitions of Dagster's definitions, and its dynamic sets: which keys they have, and since when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dagster import MultiPartitionsDefinition, PartitionKeyRange, TimeWindowPartitionsDefinition
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.instance.types import CachingDynamicPartitionsLoader
from dagster._core.storage.event_log.schema import DynamicPartitionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from sqlalchemy import select
from sqlalchemy.sql.functions import current_timestamp
from sqlalchemy.sql.functions import min as min_of

if TYPE_CHECKING:
    from dagster import DagsterInstance, PartitionsDefinition
    from dagster._core.instance.types import DynamicPartitionsStore as DynamicPartitionsStore  # noqa: PLC0414 - for others


def keys_in_range(
    definition: PartitionsDefinition[str], sets: DynamicPartitionsStore, first: str, last: str
) -> set[str]:
    """Return the keys that a run gets when it asks for a range of keys."""
    with partition_loading_context(dynamic_partitions_store=sets):
        subset = definition.empty_subset().with_partition_key_range(definition, PartitionKeyRange(first, last))
        return set(subset.get_partition_keys())


def unknown_keys(
    definition: PartitionsDefinition[str] | None, sets: DynamicPartitionsStore, texts: set[str]
) -> set[str]:
    """Return those of the keys, as Dagster spells them, that a definition does not have at this moment."""
    if definition is None:
        return set()
    if isinstance(definition, MultiPartitionsDefinition):
        parts = {text: text.split("|") for text in texts}
        unknown = [
            unknown_keys(dimension.partitions_def, sets, {key_parts[index] for key_parts in parts.values()})
            for index, dimension in enumerate(definition.partitions_defs)
        ]
        return {text for text, key_parts in parts.items() if any(map(set.__contains__, unknown, key_parts))}
    with partition_loading_context(dynamic_partitions_store=sets):
        if isinstance(definition, TimeWindowPartitionsDefinition):
            return {text for text in texts if not definition.has_partition_key(text)}
        return texts - set(definition.get_partition_keys(dynamic_partitions_store=sets))


def validated(definition: PartitionsDefinition[str], sets: DynamicPartitionsStore, text: str) -> None:
    """Raise what Dagster raises when a sensor requests a run of a key that the definition does not have."""
    with partition_loading_context(dynamic_partitions_store=sets) as context:
        definition.validate_partition_key(text, context=context)


def reading_once(instance: DagsterInstance) -> DynamicPartitionsStore:
    """Return the dynamic sets of an instance as they are when somebody asks first, each by one statement."""
    return CachingDynamicPartitionsLoader(instance)


def set_filled_since(instance: DagsterInstance, name: str) -> float | None:
    """Return since when the oldest key of a dynamic set has been there, in seconds since 1970; None: it is not known.

    Dagster notes it by the clock of its server, in the time zone of its session.
    """
    storage, table = instance.event_log_storage, DynamicPartitionsTable
    if not isinstance(storage, SqlEventLogStorage):
        return None
    oldest_and_now = select(min_of(table.c.create_timestamp), current_timestamp())
    with storage.index_connection() as connection:
        oldest, now = connection.execute(oldest_and_now.where(table.c.partitions_def_name == name)).one()
    # Of SQLite's times only the seconds are there: the earliest that it may have been.
    return None if oldest is None else time.time() - (now.replace(tzinfo=None) - oldest).total_seconds() - 1.0
