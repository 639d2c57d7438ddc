"""A step that is running: its asset, its partitions, what else its run computes, and what it reports.

Not here: the run as a whole (runs.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster import AssetKey, DagsterRunStatus, InputContext, OutputContext
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.events import DagsterEvent
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator

from varve.model.partitions.key import WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import AssetCheckEvaluation, AssetExecutionContext, InitResourceContext
    from dagster._core.execution.context.system import StepExecutionContext as StepExecutionContext  # noqa: PLC0414 - for others


def step_of(context: AssetExecutionContext | InputContext | OutputContext) -> StepExecutionContext:
    """Return the step that a body, an input or an output belongs to."""
    if isinstance(context, InputContext | OutputContext):
        return context.step_context
    return context.op_execution_context._step_execution_context


def step_identity(step: StepExecutionContext) -> tuple[str, str]:
    """Return run id and step key, which together identify the build of a step."""
    return step.run_id, step.step.key


def attempts_before(step: StepExecutionContext) -> int:
    """Return how many attempts at the step its run has made before, as a RetryPolicy of an asset has it."""
    attempts: int = step.previous_attempt_count
    return attempts


def is_cancelled(step: StepExecutionContext) -> bool:
    """Return whether somebody has cancelled the run of the step, as Dagster has noted it."""
    run = step.instance.get_run_by_id(step.run_id)
    return run is not None and run.status in {DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED}


def has_retry_policy(step: StepExecutionContext) -> bool:
    """Return whether Dagster makes a further attempt at the step where it fails, or is interrupted."""
    return step.op_retry_policy is not None


def step_asset(step: StepExecutionContext) -> AssetKey:
    """Return the asset that the step materialises; each of our datasets is one asset."""
    (key,) = step_assets(step)
    return key


def step_assets(step: StepExecutionContext) -> list[AssetKey]:
    """Return the assets that the step materialises: none where it is an asset check or an op."""
    # The checks of an asset are entities of its step, too.
    entities = step.job_def.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
    return [entity for entity in entities if isinstance(entity, AssetKey)]


def is_partitioned(step: StepExecutionContext) -> bool:
    """Return whether what the step materialises has partitions."""
    return step.entity_partitions_def is not None


def run_assets(step: StepExecutionContext) -> tuple[set[AssetKey], set[AssetKey]]:
    """Return the assets that the step's run is to compute, and those of them that this process is to compute.

    They differ where a run continues after a failure, and where an executor gives each step a process of its own.
    """
    plan, layer = step.execution_plan, step.job_def.asset_layer
    computed_here: set[AssetKey] = set()
    for name in plan.step_keys_to_execute:
        entities = layer.get_selected_entity_keys_for_node(plan.get_step_by_key(name).node_handle)
        computed_here.update(entity for entity in entities if isinstance(entity, AssetKey))
    return set(layer.selected_asset_keys), computed_here


def step_partition_keys(step: StepExecutionContext) -> list[str]:
    """Return all partitions of the step's asset that this run computes, as Dagster spells them, in no particular order.

    Of an asset without partitions, the text that stands for all of it.

    `asset_partition_key_range` raises for a range over two dimensions; the subset does not.
    """
    definition = step.entity_partitions_def
    if definition is None:
        return [WHOLE]
    with partition_loading_context(dynamic_partitions_store=step.instance):
        subset = definition.empty_subset().with_partition_key_range(definition, step.partition_key_range)
        return list(subset.get_partition_keys())


def only_step(context: InitResourceContext) -> str | None:
    """Return the key of the step that this process computes; None where it computes several of the run's steps."""
    # Dagster tags the log of a resource with the step for which alone it is made.
    step: str | None = context.log._dagster_handler.metadata["step_key"] if context.log is not None else None
    return step


def report_check(step: StepExecutionContext, evaluation: AssetCheckEvaluation) -> None:
    """Store the result of an asset check as one of the running step, also where the step fails afterwards."""
    DagsterEvent.asset_check_evaluation(step, evaluation)


def add_partition_metadata(
    step: StepExecutionContext, asset: AssetKey, metadata: Mapping[str | None, Mapping[str, Any]]
) -> None:
    """Add metadata to the materialisation events of partitions, by their keys; None: of an asset without any.

    Of all at once: for one, Dagster lists all keys of the run, of a dynamic set by a statement, and copies what was
    added for the others. Of a run of a thousand partitions of two dimensions that took 17 s.
    """
    before = step._metadata_accumulator
    gathered = dict(before.per_output_metadata)
    for key, values in metadata.items():
        handle = AssetMetadataHandle(asset_key=asset, partition_key=key)
        gathered[handle] = {**before.get_asset_metadata(asset, key), **values}
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata=gathered)
