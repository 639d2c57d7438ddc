"""The commands, each a few lines over a module of its own.

Those over batches are in batches/keeping.py, those over what is to be computed in plan/planning.py.

Not here: the commands that a project adds itself (project_commands.py).

Heavy libraries are imported by the command that needs them: `varve --help` costs what typer costs.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from varve.cli.batches import keeping, warehouse
from varve.cli.captures import commands as cdc_commands
from varve.cli.environments import commands as environment_commands
from varve.cli.environments import promoting
from varve.cli.observe import commands as observe_commands
from varve.cli.plan import key_commands, planning
from varve.cli.printing import CommandPanels, open_console, open_error_console, without_secrets
from varve.cli.project_commands import add_commands_of_project
from varve.cli.rows import commands as row_commands
from varve.cli.servers import commands as service_commands
from varve.cli.tests import commands as test_commands
from varve.model.errors import VarveError

app = typer.Typer(
    cls=CommandPanels,
    help="Rerun any partition, any time, and no reader notices.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="Settings are environment variables, VARVE_...; docs/reference.md lists them.",
)
console = open_console()
# What a person mends outside of Varve: a full disk, or files that belong to somebody else.
_OF_THE_MACHINE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
_WHOLE_OR_NOT = "A publish is whole or has not happened: `varve history DATASET` says which."
# Nearly all that a command makes is modules and plans, which stay until it ends: Python's own way, to look for garbage
# after every 700 objects, takes a sixth of the processor time of `varve why`.
_GARBAGE_AFTER = (300_000, 20, 50)
app.add_typer(warehouse.app, name="warehouse")
app.add_typer(test_commands.app, name="test")
app.add_typer(environment_commands.app, name="env")
app.add_typer(key_commands.app, name="keys")
app.add_typer(cdc_commands.app, name="cdc")


@app.callback()
def choose_project(
    context: typer.Context,
    project: Annotated[
        Path | None, typer.Option("--project", help="The project's folder; default: found from where you are, upward.")
    ] = None,
    deployment: Annotated[
        str | None, typer.Option("--deployment", help="One of its \\[tool.varve.deployments]; default: its own choice.")
    ] = None,
) -> None:
    """The options that every command has before its name."""
    if project is None and deployment is None:
        return
    from varve.cli.context import working_on
    from varve.project import Project

    chosen = Project.find(project, deployment=deployment)
    context.with_resource(working_on(chosen))
    # What this process starts, and Dagster's storage within it, find the same one.
    os.environ |= chosen.environment


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


class GraphForm(StrEnum):
    """How `varve graph` prints."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="What it is called: a new folder here, such as `shop` or `web-orders`.")],
) -> None:
    """Begin a project: a working pipeline of four datasets, with its tests, in a new folder of that name.

    `assets/` has a dataset of files that arrive, a SQL dataset in the lake, one in the warehouse, and one that a Python
    function computes; `pipeline_defs/` what Dagster loads, and a demo; `resources/` what runs are given; `tests/` a
    test of each dataset; pyproject.toml the settings. Nothing is overwritten, and no project is begun within another.

    Example: [bold]varve init shop && cd shop && make demo && make test[/]
    """
    from varve.cli import init as init_command

    init_command.init(console, name)


@app.command()
def show(
    dataset: Annotated[str, typer.Argument(help="db.table")],
    partition: Annotated[list[str] | None, typer.Argument(help="One partition, as column=value words.")] = None,
    *,
    folder: Annotated[Path | None, typer.Option("--in", help="A folder of .sql files; default: the project.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="A batch id: show what that was made from, and what was made from it.")
    ] = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the text that Spark runs for the partition, ready for spark-sql.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a dataset's dimensions, and what one of its partitions reads and is read by: exactly, and what never exists.

    Example: [bold]varve show shop.sales day=2026-11-01 store=Paris[/]
    """
    if batch is not None:
        from varve.cli.batches import batch_trace

        batch_trace.show(console, dataset, partition or [], batch, as_json=as_json)
        return
    from varve.cli.plan import show as show_command

    show_command.show(console, dataset, partition or [], as_json=as_json, folder=folder, sql=sql)


@app.command()
def check(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of .sql files; default: the project's assets.")
    ] = None,
    *,
    against: Annotated[
        str | None, typer.Option(help="A git revision, or a folder: tell which uses of columns the change breaks.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Ask Spark's analyzer too, about files that it has not seen yet.")
    ] = True,
    watch: Annotated[bool, typer.Option("--watch", help="Check again whenever a file changes, until Ctrl-C.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="With --against: print what the change breaks for a pull request.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check all SQL datasets: every problem of every file, with its place and what to write.

    With --against it names each dataset that a dropped, renamed or retyped column breaks, and whose it is: those of
    SQL files by the columns that they name, those of Python by the columns that they say they read. Exit code 1 then.
    """
    from varve.cli.files import sql

    if markdown and against is None:
        raise VarveError("--markdown tells what a change breaks: say --against REV too.")
    if watch:
        from varve.cli.files import watching

        if as_json or markdown:
            raise VarveError("--watch prints for people: leave --json and --markdown out.")
        watching.watch(console, folder, against=against, spark=spark)
    elif not sql.check(console, folder, against=against, spark=spark, as_json=as_json, markdown=markdown):
        raise typer.Exit(1)


@app.command("import")
def import_table(
    table: Annotated[
        str, typer.Argument(help="A table of the metastore, or a dataset of another project, as db.name.")
    ],
    *,
    name: Annotated[str, typer.Option("--as", help="What the dataset is called; default: as the table.")] = "",
    copies: Annotated[
        bool, typer.Option("--copy", help="EXTERNAL, which copies its partitions; default: EXTERNAL VIEW.")
    ] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the file, and write none.")] = False,
) -> None:
    """Write the EXTERNAL file of a table that exists: its columns, and its partitions by those that are there.

    Of a dataset that another project over the same catalog computes: as that declares it, to be read here.

    Example: [bold]varve import dumps.clicks[/]
    """
    from varve.cli.files import importing

    importing.import_table(console, table, name=name, copies=copies, only_print=only_print)


@app.command("fmt")
def format_sql(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; default: the project's assets.")] = None,
    *,
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 where a file would change.")
    ] = False,
) -> None:
    """Put SQL datasets into their canonical layout. Comments, expressions and queries stay as they were written."""
    from varve.cli.files import sql

    sql.fmt(console, paths or [], only_check=only_check)


@app.command()
def graph(
    *,
    form: Annotated[GraphForm, typer.Option("--format", help="How to print it.")] = GraphForm.TEXT,
    columns: Annotated[bool, typer.Option("--columns", help="Of SQL datasets: which column is made of which.")] = False,
    folder: Annotated[Path | None, typer.Option("--in", help="A folder of .sql files; default: the project.")] = None,
) -> None:
    """Show who reads whom, and by which partitions; or which column is made of which."""
    from varve.cli.files import sql

    sql.graph(console, form=form.value, columns=columns, folder=folder)


@app.command()
def alerts(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Those that are closed too, of the last 90 days.")] = False,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Look now, and send what is new: what the sensor `alerts` does.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Send a trial message to every channel, and say what happened.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List what is late, rejected, given up, broken, behind or full now, and which channels are told of it.

    Channels are URLs of Apprise, by name, in the setting VARVE_ALERTS. With --test, exit code 1 where one of them took
    nothing. A daemon that has ended cannot say so: let cron run `varve alerts --evaluate`.
    """
    from varve.cli.problems import alerts as alerts_command

    if test:
        if not alerts_command.test(console, as_json=as_json):
            raise typer.Exit(1)
        return
    alerts_command.show(console, closed_too=everything, evaluate=evaluate, as_json=as_json)


app.add_typer(service_commands.app)
app.add_typer(keeping.app)
app.add_typer(planning.app)
app.add_typer(observe_commands.app)
app.add_typer(row_commands.app)
app.add_typer(promoting.app)


def main() -> None:
    """The entry point: errors that a person can mend are one red message and exit code 1."""
    gc.set_threshold(*_GARBAGE_AFTER)
    try:
        add_commands_of_project(app, sys.argv[1:])
        app()
    except VarveError as error:
        open_error_console().print(f"[red]{type(error).__name__}:[/] ", end="")
        open_error_console().print(without_secrets(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the outermost frame: say whose fault it is, then show it
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            open_error_console().print(f"[red]{type(error).__name__}:[/] ", end="")
            open_error_console().print(without_secrets(error), markup=False, highlight=False, soft_wrap=True)
            open_error_console().print("Make room, or give the right to it, and run the command again.")
            sys.exit(1)
        if remedy := _of_the_server(error):
            open_error_console().print(f"[red]{type(error).__name__}:[/] ", end="")
            open_error_console().print(without_secrets(error).strip(), markup=False, highlight=False, soft_wrap=True)
            open_error_console().print(remedy, soft_wrap=True)
            sys.exit(1)
        stderr = open_error_console()
        with stderr.capture() as text:
            stderr.print_exception()
        stderr.file.write(without_secrets(text.get()))
        open_error_console().print(
            f"[red]This is a defect of Varve, not of your data.[/] {_WHOLE_OR_NOT}", soft_wrap=True
        )  # fmt: skip
        sys.exit(2)


def _of_the_server(error: Exception) -> str | None:
    """What to do where PostgreSQL ended or refused a session, takes no writes, or not those of its role; else None."""
    if (psycopg := sys.modules.get("psycopg")) is None:
        # No command imported it, so there was no session.
        return None
    if isinstance(error, psycopg.OperationalError):
        return f"PostgreSQL broke off. {_WHOLE_OR_NOT} Run the command again when PostgreSQL is back."
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return f"This PostgreSQL takes no writes, as a standby. {_WHOLE_OR_NOT} Name the one that does, or wait for it."
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return (
            f"The role of VARVE_POSTGRES_URL may not do that. {_WHOLE_OR_NOT} `varve warehouse roles` makes a role "
            "that may, and `--dry-run` prints its rights."
        )
    return None
