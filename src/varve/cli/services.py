"""`varve up | down | status | ui | psql`: the embedded services and the Dagster UI, for a person."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import yaml

from varve.catalog.catalog import Catalog
from varve.cli.broken import broken_values, show_broken
from varve.cli.context import chosen_settings, chosen_sql_files
from varve.cli.printing import Table
from varve.cli.rejected import rejected_row_values, rejected_values, show_rejected, show_rejected_rows
from varve.model.errors import ServiceUnavailable, VarveError
from varve.project import NoProject
from varve.services.ports import refuse_taken_port
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
    """Start what is ours to start, at the same time; then make sure that the catalog has its tables."""
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
    show_status(console, status())


def down(console: Console) -> None:
    """Stop what is ours."""
    settings = chosen_settings()
    with console.status("Stopping..."):
        stopped = {
            "Spark": SparkServer(settings).stop(),
            "PostgreSQL": PostgresServer(settings.home_dir).stop(),
        }
    for name, was_up in stopped.items():
        console.print(f"{name}: {'stopped' if was_up else 'was not running'}")


def status() -> dict[str, Any]:
    """The services, the folders and what each dataset holds, as plain values for `--json`."""
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
        "broken": _broken(),
    }


def show_status(console: Console, found: dict[str, Any]) -> None:
    """The same for people."""
    for name, service, reach in (
        ("PostgreSQL", found["postgres"], f"varve psql, or psql {shlex.quote(found['postgres']['url'])}"),
        ("Spark", found["spark"], _spark_hint(found["spark"])),
    ):
        state = {True: "[green]up[/]", False: "[yellow]down[/]", None: "deployed"}[service["up"]]
        pid = f" (pid {service['pid']})" if service["pid"] else ""
        console.print(f"[bold]{name}[/]: {state}{pid}", highlight=False)
        # Not in a table: what is to be copied must not be cut to the terminal's width.
        console.print(f"  {reach}", markup=False, highlight=False, soft_wrap=True)
    if found["datasets"]:
        datasets = Table("dataset", "store", "partitions", "rows", "batches", title="Datasets", title_justify="left")
        for one in found["datasets"]:
            datasets.add_row(
                one["dataset"], one["store"], f"{one['partitions']:,}", f"{one['rows']:,}", f"{one['batches']:,}"
            )
        console.print(datasets)
    show_rejected(console, found["rejected"])
    show_rejected_rows(console, found["rejected_rows"])
    show_broken(console, found["broken"])
    console.print(f"State lies under {found['home']}.", markup=False, highlight=False, soft_wrap=True)


def serve_ui(console: Console, port: int | None) -> None:
    """The web server and the daemon as children of this process, until one ends or Ctrl-C.

    Raises ServiceUnavailable where the port is taken.
    """
    settings = chosen_settings()
    chosen = port or settings.ui_port
    refuse_taken_port(chosen, setting="VARVE_UI_PORT", remedy="Choose another: varve ui --port 3001.")
    up(console)
    environment = {**os.environ, "DAGSTER_HOME": str(dagster_home(settings))}
    workspace = str(settings.project / "workspace.yaml")
    programs = Path(sys.executable).parent
    web = [str(programs / "dagster-webserver"), "-h", "127.0.0.1", "-p", str(chosen), "-w", workspace]
    daemon = [str(programs / "dagster-daemon"), "run", "-w", workspace]
    # A supervisor's SIGTERM ends it as Ctrl-C does, and so does SIGINT where a shell has it ignored in the background:
    # the children must not outlive it.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    children = [subprocess.Popen(command, env=environment) for command in (web, daemon)]
    console.print(f"The Dagster UI is at [link]http://127.0.0.1:{chosen}[/link]; Ctrl-C ends it.", highlight=False)
    try:
        while all(child.poll() is None for child in children):
            try:
                children[0].wait(1)
            except subprocess.TimeoutExpired:
                continue
    except KeyboardInterrupt:
        console.print("Stopping the UI; PostgreSQL and Spark stay up (varve down stops them).")
    finally:
        for child in children:
            child.send_signal(signal.SIGINT)
        for child in children:
            child.wait(30)


def psql(arguments: Sequence[str]) -> None:
    """Become psql: the machine's, else the one that came with the embedded server.

    The password goes into its environment: everybody may read a command line.
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


def dagster_home(settings: Settings) -> Path:
    """Dagster's home: yours where DAGSTER_HOME is set, else a folder under Varve's with a copy of dagster.yaml.

    The copy names the project whose storage it describes, as it lies elsewhere.
    """
    if own := os.environ.get("DAGSTER_HOME"):
        return Path(own)
    home = settings.home_dir / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    own_file = settings.project / "dagster.yaml"
    if not own_file.is_file():
        raise NoProject(
            f"there is no {own_file}, which says where Dagster keeps its runs. `varve init` writes one; or set "
            "DAGSTER_HOME to a folder that has one."
        )
    described = yaml.safe_load(own_file.read_text(encoding="utf-8"))
    storage = described.get("storage", {}).get("custom", {})
    if storage.get("module") == "varve.dagster.internal":
        storage["config"] = {"project": str(settings.project), **(storage.get("config") or {})}
    (home / "dagster.yaml").write_text(yaml.safe_dump(described), encoding="utf-8")
    return home


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
    return [
        {
            "dataset": one.dataset,
            "store": one.store,
            "partitions": one.partitions,
            "rows": one.rows,
            "bytes": one.size,
            "batches": one.batches,
        }
        for one in counts
    ]


def _rejected(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        return rejected_values(connection)


def _rejected_rows(settings: Settings) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        return rejected_row_values(connection)


def _broken() -> list[dict[str, Any]]:
    return broken_values(chosen_sql_files().broken)


def _spark_hint(spark: dict[str, Any]) -> str:
    if not spark["embedded"]:
        return str(spark["remote"])
    discovery = shlex.quote(spark["discovery"])
    return f"SPARK_LOCAL_CONNECT_REUSE=1 SPARK_LOCAL_CONNECT_DISCOVERY={discovery} pyspark --remote 'local[*]'"
