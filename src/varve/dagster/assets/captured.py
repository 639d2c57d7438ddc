"""A captured table as Dagster sees it: one asset, a sensor that captures, a job that applies, and checks.

The job publishes every partition that the changes touch. Datasets downstream become due by the ordinary rules, which
read the catalog.

Not here: capturing and applying (varve/cdc), and which tables are captured (the project's assets).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from varve.cdc.captured_table import CapturedTable
from varve.cdc.captures import OpenCapture, opened, other_tables, passed_over
from varve.cdc.event import format_lsn
from varve.cdc.verify.verification import verify
from varve.dagster.assets.asset_definitions import io_manager_key, table_schema
from varve.dagster.assets.capture_runs import why_not_asked
from varve.dagster.partitions.definitions import dataset_partitions_def
from varve.model.errors import AlreadyBuilding, VarveError, cut
from varve.planning.reasons import LONGEST
from varve.planning.requested import REASON_TAG
from varve.project import Project
from varve.stores.open import open_store

# As many rows that differ are in the metadata of the check; `varve cdc verify` shows all.
_ROWS_SHOWN = 20
# So many seconds a run waits until another process that captures or applies has ended.
_PATIENCE = 120.0


def captured_spec(captured: CapturedTable) -> dg.AssetSpec:
    """Return the asset of the dataset of a captured table."""
    dataset = captured.dataset
    return dg.AssetSpec(
        dg.AssetKey([dataset.db, dataset.table]),
        description=f"{dataset.comment} Captured from {captured.source}.",
        group_name=dataset.db,
        kinds={"postgres", "parquet"},
        owners=list(dataset.owners),
        partitions_def=dataset_partitions_def(dataset),
        metadata={
            "dagster/table_name": dataset.name,
            "dagster/column_schema": table_schema(dataset),
            "varve/source": captured.source,
        },
    ).with_io_manager_key(io_manager_key(dataset.store))


@dataclass(frozen=True)
class Automation:
    """The Dagster definitions of a captured table beside its asset."""

    job: dg.JobDefinition
    sensor: dg.SensorDefinition
    checks: tuple[dg.AssetChecksDefinition, ...]
    schedules: tuple[dg.ScheduleDefinition, ...]


def automation(captured: CapturedTable, project: Project) -> Automation:
    """Return the job, the sensor, the checks and the schedule of a captured table."""
    job, checks = capture_job(captured, project), [exactness_check(captured, project)]
    if captured.files is None and not captured.ignore_null_updates:
        checks.append(equality_check(captured, project))
    schedules = () if captured.verify is None else (verification_schedule(captured, captured.verify),)
    return Automation(job, capture_sensor(captured, project, job), tuple(checks), schedules)


def capture_job(captured: CapturedTable, project: Project) -> dg.JobDefinition:
    """Return the job that captures new changes, applies them, and reports each partition that was published."""
    dataset = captured.dataset
    name = f"capture_{dataset.db}_{dataset.table}"
    key = dg.AssetKey([dataset.db, dataset.table])

    @dg.op(name=name, required_resource_keys={"spark"}, description=f"Changes of {captured.source} into {dataset}.")
    def capture_and_apply(context: dg.OpExecutionContext) -> Iterator[dg.AssetMaterialization | dg.Output[None]]:
        try:
            # The tick of the sensor, which only captures, may hold the lock for a moment.
            with opened(captured, project.settings, run_id=context.run_id, patience=_PATIENCE) as capture:
                events, stop = capture.capture_to_stop()
                applied = capture.apply_before_stop(
                    stop, open_store, lambda: context.resources.spark.spark_session, context.run_id
                )
                lag = lag_of(capture)
        except VarveError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from None
        context.log.info("%d events captured, %d applied", events, applied.events if applied else 0)
        for batch in applied.published if applied else ():
            partition = dataset.partitioning.to_dagster(batch.partition)
            # Logged on the context instead, they would be lost with the failure below.
            yield dg.AssetMaterialization(
                key,
                partition=partition,
                metadata={
                    "dagster/partition_row_count": batch.rows,
                    "dagster/uri": batch.location,
                    "varve/bytes": batch.size,
                    "varve/quarantined": applied.quarantined if applied else 0,
                    **lag,
                },
            )
        if stop is not None:
            raise dg.Failure(description=str(stop), allow_retries=False)
        yield dg.Output(None)

    @dg.job(name=f"{name}_job", executor_def=dg.in_process_executor, description=f"Brings {dataset} up to its source.")
    def job() -> None:
        capture_and_apply()

    return job


def capture_sensor(captured: CapturedTable, project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Return the sensor that captures a micro-batch at each tick, without Spark, and requests a run to apply it."""
    dataset = captured.dataset

    @dg.sensor(
        name=f"capture_{dataset.db}_{dataset.table}_sensor",
        job_name=job.name,
        minimum_interval_seconds=30,
        description=f"Changes of {captured.source} become durable; a run applies them.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            with opened(captured, project.settings) as capture:
                events, stop = capture.capture_to_stop()
                pending = capture.waiting()
                added = capture.added_columns() if stop is None else ()
        except AlreadyBuilding as error:
            return dg.SkipReason(str(error))
        except VarveError as error:
            return dg.SkipReason(f"Nothing was captured: {error}")
        if not pending and stop is not None:
            return dg.SkipReason(f"Nothing was captured: {stop}")
        if not pending and not added:
            return dg.SkipReason("The dataset holds what the source had committed.")
        reason = f"{events} events captured, {sum(batch.counts.events for batch in pending)} to apply"
        if others := passed_over(captured.source, other_tables(pending)):
            reason += f"; {others}"
        if stop is not None:
            reason += f"; then capture stopped: {stop}"
        if added:
            reason += f"; {', '.join(added)} to load"
        if why := why_not_asked(context.instance, job.name, project.settings):
            return dg.SkipReason(f"{reason}. {why}")
        # Without a key: what a failed run has left is asked for again, whether or not more was captured since.
        return dg.SensorResult(run_requests=[dg.RunRequest(tags={REASON_TAG: cut(reason, LONGEST)})])

    return evaluate


def exactness_check(captured: CapturedTable, project: Project) -> dg.AssetChecksDefinition:
    """Return the check that every captured event could be applied and that the stream still describes the table."""
    dataset = captured.dataset

    @dg.asset_check(
        asset=dg.AssetKey([dataset.db, dataset.table]),
        name="exact",
        description="No event is quarantined, capture neither waits nor has stopped, and the source will keep its log.",
    )
    def exact() -> dg.AssetCheckResult:
        with opened(captured, project.settings, lock=False) as capture:
            position, warning = capture.position, capture.kept().warning
            exactly = position.quarantined == 0 and position.state == "running" and position.reason is None
            return dg.AssetCheckResult(
                passed=exactly and warning is None,
                severity=dg.AssetCheckSeverity.WARN if exactly else dg.AssetCheckSeverity.ERROR,
                metadata={"quarantined": position.quarantined, "state": position.state,
                          "reason": position.reason or warning or "", **lag_of(capture)},
            )  # fmt: skip

    return exact


def equality_check(captured: CapturedTable, project: Project) -> dg.AssetChecksDefinition:
    """Return the check that source and dataset are equal, row for row, at one place of the source's log.

    It is made when a person or the schedule of the table asks for it, never with a run of the capture.
    """
    dataset = captured.dataset

    @dg.asset_check(
        asset=dg.AssetKey([dataset.db, dataset.table]),
        name="equal",
        description=f"{dataset} has the rows of {captured.source} and no others, compared at one place of its log.",
        required_resource_keys={"spark"},
    )
    def equal(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        run_id = context.run.run_id
        try:
            with opened(captured, project.settings, run_id=run_id) as capture:
                spark = context.resources.spark
                result = verify(capture, open_store, lambda: spark.spark_session, run_id, context.log.info)
        except VarveError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from None
        rows = [f"{dict(row.key)} ({row.where}): {dict(row.values)}" for row in result.rows[:_ROWS_SHOWN]]
        return dg.AssetCheckResult(
            passed=result.equal,
            metadata={
                "lsn": format_lsn(result.lsn), "rows at the source": result.source_rows,
                "rows in the lake": result.lake_rows, "rows that differ": len(result.rows),
                "rows in another partition": result.misplaced, "quarantined": result.quarantined,
                "seconds": max(result.seconds.values()),
                "the first of them": dg.MetadataValue.md("\n".join(f"- `{row}`" for row in rows)),
            },
        )  # fmt: skip

    return equal


def verification_schedule(captured: CapturedTable, cron: str) -> dg.ScheduleDefinition:
    """Return the schedule that asks for the check `equal`; a person switches it on, as the sensors."""
    dataset = captured.dataset
    name = f"verify_{dataset.db}_{dataset.table}"
    check = dg.AssetCheckKey(dg.AssetKey([dataset.db, dataset.table]), "equal")
    job = dg.define_asset_job(f"{name}_job", selection=dg.AssetSelection.checks(check))
    return dg.ScheduleDefinition(
        name=f"{name}_schedule", job=job, cron_schedule=cron, execution_timezone="UTC",
        description=f"Compares {dataset} with {captured.source}.",
    )  # fmt: skip


def lag_of(capture: OpenCapture) -> dict[str, int]:
    """Return, in bytes, how far the dataset is behind the captured log, and how much log the source retains."""
    slot = capture.kept().slot
    position = capture.position
    durable_lsn = capture.capturing.log.captured(position.generation) or 0
    behind = max(0, durable_lsn - position.applied_lsn) if position.applied_lsn >= 0 else durable_lsn
    lag = {"varve/bytes_to_apply": behind}
    if slot is not None:
        lag["varve/bytes_retained"] = slot.retained
        if slot.safe is not None:
            lag["varve/bytes_safe"] = slot.safe
    return lag
