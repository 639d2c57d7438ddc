"""Errors of Spark, PostgreSQL and the disk as messages about the dataset: what happened, what is current, what to do.

And why steps failed, as Dagster's records have it, for the process that notes it in the catalog.

Not here: errors in the rows of landing files (varve/sources/landing/bad_rows.py), and of the tasks of a load
(varve/stores/warehouse/loading/errors.py).
"""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg
import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.living.leases import lease_lost
from varve.dagster.internal.steps import has_retry_policy, is_cancelled, step_of
from varve.dagster.leases.leases import leases_in
from varve.model import errors
from varve.model.errors import NOTHING_LOST, AlreadyBuilding, BadInput, ServiceUnavailable, VarveError
from varve.services.outages import is_outage, is_server_lost, names_outage
from varve.services.postgres import connect
from varve.services.secrets import redacted
from varve.sources.landing.bad_rows import explain_bad_row
from varve.sql.spark.run_errors import run_message
from varve.stores.frames import spark_errors, spark_says

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.dagster.internal.runs import SerializableErrorInfo
    from varve.dagster.internal.steps import StepExecutionContext
    from varve.model.build import Build
    from varve.services.settings import Settings
    from varve.stores.open_build import OpenBuild

# How long the server is asked what became of a publish; after a crash it restarts within a second or two.
_ASK_SECONDS = 10.0
# The metadata of a failure by which the process that notes it knows an outage: it sees Dagster's records alone.
OUTAGE_METADATA = "varve/outage"
# What Dagster raises in a run that is cancelled has no message; `varve why` and the history show this one.
_INTERRUPTED = "the run was interrupted: somebody has cancelled it, or its process was told to end"
_OUR_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, VarveError)}


@contextlib.contextmanager
def as_dagster_failure(context: dg.AssetExecutionContext | dg.InputContext | dg.OutputContext) -> Iterator[None]:
    """Turn a VarveError into a failure of Dagster with just its message, which is not retried.

    So is the end of a run that somebody cancels: with a RetryPolicy, Dagster would make a further attempt.
    """
    try:
        yield
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt):
        # Without a policy nothing is tried again, and nobody need be asked: Dagster's storage may be what is away.
        if has_retry_policy(step := step_of(context)) and is_cancelled(step):
            raise interruption(step) from None
        raise
    except VarveError as error:
        # The message is complete; a chain of tracebacks would bury it.
        metadata = {OUTAGE_METADATA: True} if is_outage(error) else {}
        raise dg.Failure(description=redacted(str(error)), metadata=metadata, allow_retries=False) from None


def interruption(step: StepExecutionContext) -> BaseException:
    """Return what ends a step of a cancelled run, and is not tried again."""
    if has_retry_policy(step):
        return dg.Failure(description=_INTERRUPTED, allow_retries=False)
    return dg.DagsterExecutionInterruptedError()


@contextlib.contextmanager
def explained(opened: OpenBuild, settings: Settings) -> Iterator[None]:
    """Turn errors of Spark, PostgreSQL and the disk into VarveErrors about the build.

    They name a bad row by its line, a full disk, or a lost server; other errors are raised as they are.
    """
    build = opened.build
    try:
        yield
    except spark_errors() as error:
        if (explanation := _of_spark(opened, error)) is not None:
            raise explanation from error
        if (redacted_text := redacted(str(error))) != str(error):
            # The driver's message has a password in its URL, and Dagster would store the whole chain of errors.
            raise VarveError(f"{build}: {redacted_text.strip().splitlines()[0]} {NOTHING_LOST}") from None
        raise
    except OSError as error:
        if is_outage(error):
            raise ServiceUnavailable(
                f"{build}: a service cannot be reached: {redacted(str(error))}. {NOTHING_LOST}"
            ) from error
        # Spark has written its files by then; the batch's description and files of empty partitions are written here.
        if error.errno == errno.ENOSPC:
            raise _full_disk(build, "the lake") from error
        raise
    except psycopg.errors.DiskFull as error:
        raise _full_disk(build, "PostgreSQL") from error
    except psycopg.OperationalError as error:
        if opened.catalog.connection.broken:
            _refuse_dead(build, settings, error)
        outcome = (
            _publish_outcome(build, settings) if opened.catalog.connection.broken else f"{NOTHING_LOST} Run it again."
        )
        raise VarveError(f"{build}: PostgreSQL was lost: {redacted(str(error).strip())} {outcome}") from error


def _of_spark(opened: OpenBuild, error: Exception) -> VarveError | None:
    """What an error of Spark says about the build; None where it is not known."""
    build = opened.build
    if bad_row := explain_bad_row(build, str(error)):
        return bad_row
    if row_text := (opened.row_error or run_message)(error):
        return BadInput(_with_excerpt(f"{build}: {redacted(row_text)}"))
    if "No space left on device" in str(error):
        return _full_disk(build, "the lake")
    reason = redacted(next(iter(spark_says(error).splitlines()), "")).rstrip(".")
    if is_server_lost(error):
        return VarveError(
            f"{build}: Spark was lost: {reason}. {NOTHING_LOST} Run it again; the embedded server then starts by "
            "itself."
        )
    if is_outage(error):
        return ServiceUnavailable(f"{build}: a service that Spark needs cannot be reached: {reason}. {NOTHING_LOST}")
    return None


def _with_excerpt(text: str) -> str:
    """Return a message whose further lines are an excerpt of a file, with what is left of the build before them."""
    message, _, excerpt = text.partition("\n")
    return f"{message} {NOTHING_LOST}{excerpt and f'{chr(10)}{excerpt}'}"


def _full_disk(build: Build, what: str) -> VarveError:
    """The error of a full disk: an outage, unless a run of fewer partitions may fit where this one does not."""
    message = (
        f"{build}: the disk under {what} is full. {NOTHING_LOST} Free some space, and run it again, which the sensors "
        "do by themselves."
    )
    return ServiceUnavailable(message) if len(build.partitions) == 1 else VarveError(message)


def _refuse_dead(build: Build, settings: Settings, error: Exception) -> None:
    """Raise LeaseLost where the run counts as dead, which ends its connection, and its build was not published."""
    with contextlib.suppress(ServiceUnavailable, psycopg.Error), leases_in(settings, "varve after a loss") as leases:
        lease = leases.of(build.run_id)
        if lease is not None and lease.lost_at is not None and not Catalog(leases.connection).was_published(build):
            raise lease_lost(lease, str(build)) from error


def _publish_outcome(build: Build, settings: Settings) -> str:
    """Return, as text, whether a build that lost its connection was published, and what to do.

    Where the connection is lost during the commit, only the server knows.
    """
    deadline = time.monotonic() + _ASK_SECONDS
    while True:
        try:
            with connect(settings, application=f"varve {build.dataset} after a loss") as connection:
                catalog = Catalog(connection)
                # Once the locks can be taken, the lost session has ended and cannot commit any more.
                new_build = catalog.lock_partitions(build.dataset, build.partitions, run_id=build.run_id)
                published = catalog.was_published(build)
                catalog.release(new_build)
        except (AlreadyBuilding, ServiceUnavailable, psycopg.Error):
            if time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            return (
                f"It cannot be asked whether the batch became current: see `varve history {build.dataset}` when the "
                "server is back, and run it again where it did not."
            )
        if published:
            return (
                "The batch had become current by then, and readers have it; only this run's record is not whole. "
                f"`varve repair {build.dataset}` brings everything in step; nothing needs to be run again."
            )
        return f"{NOTHING_LOST} Run it again when the server is back."


class StepFailure(NamedTuple):
    """Why a step has failed, and whether that is an outage: a service could not be reached."""

    reason: str
    outage: bool = False


def failure_text(error: BaseException) -> str:
    """Return why a build is given up, as text; never empty."""
    if isinstance(error, dg.DagsterExecutionInterruptedError | KeyboardInterrupt):
        return _INTERRUPTED
    return spark_says(error) or type(error).__name__


def step_failures(instance: dg.DagsterInstance, run_id: str) -> dict[str, StepFailure]:
    """Return why steps of a run have failed so far, by the key of the step."""
    failures = {}
    for record in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        event = record.get_dagster_event()
        data = event.step_failure_data
        if event.step_key is None:
            continue
        user_data, causes = data.user_failure_data, _causes(data.error)
        outage = user_data is not None and OUTAGE_METADATA in user_data.metadata
        outage = outage or names_outage((cause.cls_name or "", _text_of(cause)) for cause in causes)
        # The message of an error of ours is complete; of others the first one in time says most.
        ours = [_text_of(cause) for cause in causes if cause.cls_name in _OUR_ERRORS]
        others = [cause.to_string().strip().split("\n\nStack Trace")[0] for cause in causes[-1:]]
        if any(cause.cls_name == dg.DagsterExecutionInterruptedError.__name__ for cause in causes):
            others = [_INTERRUPTED]
        description = user_data.description if user_data else None
        failures[event.step_key] = StepFailure(description or next(iter([*ours, *others]), ""), outage)
    return failures


def is_tried_again(instance: dg.DagsterInstance, run_id: str, step: str) -> bool:
    """Return whether the last attempt at a step has failed and Dagster makes a further one."""
    ends = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY}
    events = [record.get_dagster_event() for record in instance.all_logs(run_id, of_type=ends)]
    of_step = [event.event_type for event in events if event.step_key == step]
    return of_step[-1:] == [dg.DagsterEventType.STEP_UP_FOR_RETRY]


def _text_of(error: SerializableErrorInfo) -> str:
    """Return the message of an error without the name of its class, which Dagster puts before it."""
    return error.message.partition(": ")[2].strip()


def _causes(error: SerializableErrorInfo | None) -> list[SerializableErrorInfo]:
    """Return an error and what it came from, which is the last one."""
    causes = []
    while error is not None:
        causes.append(error)
        error = error.cause
    return causes
