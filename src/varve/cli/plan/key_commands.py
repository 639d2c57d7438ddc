"""The group `varve keys`: the keys of dynamic sets."""

from __future__ import annotations

from typing import Annotated

import typer

from varve.cli.printing import open_console

app = typer.Typer(help="Show, add and remove the keys of dynamic sets.", no_args_is_help=True)
console = open_console()
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]


@app.command("list")
def list_keys(*, as_json: Json = False) -> None:
    """Show every dynamic set with its keys."""
    from varve.cli.plan import keys

    keys.show(console, as_json=as_json)


@app.command("add")
def add_keys(name: Annotated[str, typer.Argument(metavar="SET")], key: list[str]) -> None:
    """Add keys to a set; what has the dimension sees them at the next tick."""
    from varve.cli.plan import keys

    keys.add(console, name, key)


@app.command("remove")
def remove_keys(name: Annotated[str, typer.Argument(metavar="SET")], key: list[str]) -> None:
    """Take keys out of a set. Their data stays until it is retired."""
    from varve.cli.plan import keys

    keys.remove(console, name, key)


@app.command("follow")
def follow_keys() -> None:
    """Add the windows that have come to pass, as the sensor `partition_sets` does: for use without the daemon."""
    from varve.cli.plan import keys

    keys.follow(console)
