"""The only module that knows Dagster's private names; tests/resources/test_dagster_internal.py pins the version.

Here: the storage class named in dagster.yaml, and the partitions and the metadata of a running step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster import AssetKey, InputContext, OutputContext
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster_postgres import DagsterPostgresStorage

from resources.postgres import dagster_storage_url
from resources.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import AssetExecutionContext
    from dagster._core.execution.context.system import StepExecutionContext
    from dagster._serdes import ConfigurableClassData


class VarveDagsterStorage(DagsterPostgresStorage):
    """dagster-postgres' storage on the server the settings name, which is started first where it is the embedded one.

    So `dagster`, the web server, the daemon and every run work from a cold start, and notice a server that has died.
    """

    @classmethod
    def config_type(cls) -> Any:
        """No configuration of its own: the settings decide."""
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> VarveDagsterStorage:
        """Called by Dagster when it loads an instance."""
        del config_value
        return cls(postgres_url=dagster_storage_url(Settings()), inst_data=inst_data)

    # The inherited ones point at dagster-postgres' classes with our (empty) configuration; a process that were given
    # such a reference could not load it. Storage as a whole is what instance references carry.
    @property
    def event_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None

    @property
    def run_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None

    @property
    def schedule_storage_data(self) -> ConfigurableClassData | None:
        """None: see above."""
        return None


def step_of(context: AssetExecutionContext | InputContext | OutputContext) -> StepExecutionContext:
    """The step that a body, an input or an output belongs to."""
    if isinstance(context, InputContext | OutputContext):
        return context.step_context
    return context.op_execution_context._step_execution_context


def step_identity(step: StepExecutionContext) -> tuple[str, str]:
    """Run id and step key: what one build belongs to."""
    return step.run_id, step.step.key


def step_asset(step: StepExecutionContext) -> AssetKey:
    """The asset that the step materialises; our datasets are one asset each."""
    (key,) = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
    assert isinstance(key, AssetKey)
    return key


def step_partition_keys(step: StepExecutionContext) -> list[str]:
    """All partitions of the step's asset that this run computes, as Dagster spells them, in no particular order.

    `asset_partition_key_range` raises for a range over two dimensions; the subset does not.
    """
    definition = step.entity_partitions_def
    if definition is None:
        return []
    with partition_loading_context(dynamic_partitions_store=step.instance):
        subset = definition.empty_subset().with_partition_key_range(definition, step.partition_key_range)
        return list(subset.get_partition_keys())


def add_partition_metadata(
    step: StepExecutionContext, asset: AssetKey, partition: str, metadata: Mapping[str, Any]
) -> None:
    """Metadata for the materialisation event of one partition of a run over many."""
    step.add_asset_metadata(dict(metadata), asset_key=asset, partition_key=partition)
