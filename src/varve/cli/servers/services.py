"""`varve up | down | status | psql`: the embedded services, for a person. Not here: `varve ui` (ui.py)."""

from __future__ import annotations

import os
import shlex
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.cli.context import chosen_settings, chosen_sql_files
from varve.cli.printing import Table
from varve.cli.problems.alerts import open_alert_values, show_open_alerts
from varve.cli.problems.broken import broken_values, show_broken
from varve.cli.problems.rejected import rejected_row_values, rejected_values, show_rejected, show_rejected_rows
from varve.dagster.instance import dagster_home
from varve.model.errors import ServiceUnavailable, VarveError
from varve.project import NoProject
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import CATALOG_DATABASE, DAGSTER_DATABASE, PostgresServer, binaries
from varve.services.secrets import without_password, without_secrets
from varve.services.spark_server import SparkServer
from varve.stores.warehouse.tables.roles import ensure_roles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.services.settings import Settings


def up(console: Console) -> None:
    """Start the embedded services, both at the same time, and make sure that the catalog has its tables."""
    settings = chosen_settings()
    failures: list[BaseException] = []

    def start_spark() -> None:
        try:
            SparkServer(settings).ensure_up()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the command
            failures.append(error)

    with console.status("Starting PostgreSQL and Spark (the first time takes about 15 s)..."):
        spark = threading.Thread(target=start_spark) if settings.embedded_spark else None
        if spark:
            spark.start()
        with connect(settings) as connection:
            Catalog(connection).ensure_schema()
            if settings.embedded_postgres:
                ensure_roles(
                    connection, connections=settings.reader_connections, statement_seconds=settings.reader_seconds
                )
        if settings.embedded_postgres:
            PostgresServer(settings.home_dir).ensure_up()
        if spark:
            spark.join()
    if failures:
        raise failures[0]
    with suppress(NoProject):
        # Dagster's own commands want the folder to be there.
        dagster_home(settings)
    show_status(console, status())


def down(console: Console) -> None:
    """Stop the embedded services."""
    settings = chosen_settings()
    with console.status("Stopping..."):
        stopped = {
            "Spark": SparkServer(settings).stop(),
            "PostgreSQL": PostgresServer(settings.home_dir).stop(),
        }
    for name, was_up in stopped.items():
        console.print(f"{name}: {'stopped' if was_up else 'was not running'}")


def status() -> dict[str, Any]:
    """Return the services, the folders and what each dataset holds, as plain values for `--json`."""
    settings = chosen_settings()
    server, spark = PostgresServer(settings.home_dir), SparkServer(settings)
    postgres_up = server.is_up() if settings.embedded_postgres else _answers(settings)
    reached = spark.remote() if settings.embedded_spark else None
    return {
        "home": str(settings.home_dir),
        "lake": settings.lake,
        "landing": settings.landing,
        "postgres": {
            "embedded": settings.embedded_postgres,
            "up": postgres_up,
            "pid": server.pid() if settings.embedded_postgres and postgres_up else None,
            "url": server.url(CATALOG_DATABASE)
            if settings.embedded_postgres
            else without_secrets(settings.postgres_url or ""),
            "dagster_url": server.url(DAGSTER_DATABASE)
            if settings.dagster_postgres_url is None
            else without_secrets(settings.dagster_postgres_url),
        },
        "spark": {
            "embedded": settings.embedded_spark,
            "up": reached is not None if settings.embedded_spark else None,
            "pid": spark.pid() if reached else None,
            "remote": reached[0] if reached else without_secrets(settings.spark_remote or settings.spark_master or ""),
            "discovery": str(spark.discovery) if settings.embedded_spark else None,
        },
        "datasets": _datasets(settings) if postgres_up else [],
        "rejected": _rejected(settings) if postgres_up else [],
        "rejected_rows": _rejected_rows(settings) if postgres_up else [],
        "alerts": _alerts(settings) if postgres_up else [],
        "broken": _broken(),
    }


def show_status(console: Console, status_values: dict[str, Any]) -> None:
    """Print the status."""
    for name, service, reach in (
        (
            "PostgreSQL",
            status_values["postgres"],
            f"varve psql, or psql {shlex.quote(status_values['postgres']['url'])}",
        ),
        ("Spark", status_values["spark"], _spark_hint(status_values["spark"])),
    ):
        state = {True: "[green]up[/]", False: "[yellow]down[/]", None: "deployed"}[service["up"]]
        pid = f" (pid {service['pid']})" if service["pid"] else ""
        console.print(f"[bold]{name}[/]: {state}{pid}", highlight=False)
        # The hint is printed outside of a table, which would cut text that people copy to the terminal's width.
        console.print(f"  {reach}", markup=False, highlight=False, soft_wrap=True)
    if status_values["datasets"]:
        datasets = Table("dataset", "store", "partitions", "rows", "batches", title="Datasets", title_justify="left")
        for row in status_values["datasets"]:
            datasets.add_row(
                row["dataset"], row["store"], f"{row['partitions']:,}", f"{row['rows']:,}", f"{row['batches']:,}"
            )
        console.print(datasets)
    for row in status_values["datasets"]:
        if row["made_by_other_code"]:
            console.print(
                f"{row['dataset']}: made by other code than is deployed: {row['made_by_other_code']:,} of "
                f"{row['partitions']:,}; varve plan shows what is decided of them.", highlight=False, soft_wrap=True,
            )  # fmt: skip
    show_rejected(console, status_values["rejected"])
    show_rejected_rows(console, status_values["rejected_rows"])
    show_open_alerts(console, status_values["alerts"])
    show_broken(console, status_values["broken"])
    console.print(f"State lies under {status_values['home']}.", markup=False, highlight=False, soft_wrap=True)


def psql(arguments: Sequence[str]) -> None:
    """Replace this process by psql: the machine's, or else the one that came with the embedded server.

    The password is handed over in the environment, as everybody on the machine may read a command line.
    """
    url, password = without_password(warehouse_url(chosen_settings()))
    if without_secrets(url) != url:
        raise VarveError(
            "VARVE_POSTGRES_URL holds a secret besides the password, and psql takes that in its command line only, "
            "which everybody on this machine may read. Name it in a service file (PGSERVICEFILE) instead."
        )
    environment = os.environ if password is None else {**os.environ, "PGPASSWORD": password}
    program = shutil.which("psql")
    if program is None:
        program = str(binaries() / "psql")
    os.execve(program, [program, url, *arguments], environment)  # noqa: S606 - no shell is wanted


def _answers(settings: Settings) -> bool:
    try:
        connect(settings).close()
    except ServiceUnavailable:
        return False
    return True


def _datasets(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        try:
            counts = Catalog(connection).counts()
        except psycopg.errors.UndefinedTable:
            return []
        try:
            outdated = Deployments(connection).outdated([count.dataset for count in counts])
        except psycopg.errors.UndefinedTable:
            # A catalog of an earlier version, which the next command upgrades; this one changes nothing.
            outdated = {}
    return [
        {
            "dataset": count.dataset,
            "store": count.store,
            "partitions": count.partitions,
            "rows": count.rows,
            "bytes": count.size,
            "batches": count.batches,
            "made_by_other_code": len(outdated.get(count.dataset, ())),
        }
        for count in counts
    ]


def _rejected(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        return rejected_values(connection)


def _rejected_rows(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        return rejected_row_values(connection)


def _alerts(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        return open_alert_values(connection)


def _broken() -> list[dict[str, Any]]:
    return broken_values(chosen_sql_files().broken)


def _spark_hint(spark: dict[str, Any]) -> str:
    if not spark["embedded"]:
        return str(spark["remote"])
    discovery = shlex.quote(spark["discovery"])
    return f"SPARK_LOCAL_CONNECT_REUSE=1 SPARK_LOCAL_CONNECT_DISCOVERY={discovery} pyspark --remote 'local[*]'"
