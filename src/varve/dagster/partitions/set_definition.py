"""Dagster's definition of a dynamic set that tells a person at the shell what to run where a key is not in the set.

Not here: which dimensions become which definitions (definitions.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import dagster as dg

from varve.model.errors import some

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX = "varve/"


class SetPartitions(dg.DynamicPartitionsDefinition):
    """A dynamic set; `dagster asset materialize` with a key that it has not says so in a sentence."""

    def validate_partition_key(self, partition_key: str, context: Any) -> None:
        """Raise DagsterUnknownPartitionError for a key that is not in the set; under a command, its usage error."""
        try:
            super().validate_partition_key(partition_key, context)
        except dg.DagsterUnknownPartitionError:
            command = click.get_current_context(silent=True)
            if command is None or not command.command_path.endswith("asset materialize"):
                raise
            with dg.partition_loading_context(new_ctx=context):
                present = self.get_partition_keys()
            raise click.UsageError(_missing(str(self.name).removeprefix(_PREFIX), partition_key, present)) from None


class ProductPartitions(dg.MultiPartitionsDefinition):
    """A product with a dynamic set: where a key of a partition is not in the set, the set says so as it does alone."""

    def validate_partition_key(self, partition_key: str, context: Any) -> None:
        """Raise what the set raises of a key that it has not, and what Dagster does of other partitions."""
        try:
            super().validate_partition_key(partition_key, context)
        except dg.DagsterUnknownPartitionError:
            parts = partition_key.split("|")
            if len(parts) == len(self.partitions_defs):
                for dimension, key in zip(self.partitions_defs, parts, strict=True):
                    if isinstance(dimension.partitions_def, SetPartitions):
                        dimension.partitions_def.validate_partition_key(key, context)
            raise


def _missing(set_name: str, key: str, present: Sequence[str]) -> str:
    held = f"its {len(present)} keys are {some(present, limit=5)}" if present else "as it is empty"
    return (
        f"the set {set_name} has no key {key}, {held}. Materialise the dataset that adds its keys; `varve keys follow` "
        f"adds those that a query finds in the data, and `varve keys add {set_name} {key}` this one."
    )
