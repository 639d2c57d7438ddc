"""The console that all commands print to, its tables, and the layout of `--help`. Not here: what they print."""

from __future__ import annotations

import os
from typing import Any

import rich.table
from rich.console import Console
from typer.core import TyperGroup

# The width where the output is a file or a pipe: rich would cut everything to 80 columns there.
_FILE_COLUMNS = 160
# In the order in which somebody new meets them.
_PANELS = {
    "Begin": ("init", "up", "down", "status", "ui", "console", "psql", "migrate"),
    "Write a dataset": ("check", "show", "graph", "fmt", "import", "test", "preview"),
    "What runs, and why": ("plan", "apply", "why", "tasks", "backfill", "accept", "retire", "keys"),
    "Try a change, or correct data": ("env", "diff", "promote", "revert", "correct", "evolve"),
    "Batches": ("history", "rollback", "pin", "unpin", "snapshot", "folders", "reopen", "sweep"),
    "Look after it": ("alerts", "logs", "costs", "metrics", "doctor", "repair", "own", "drop", "warehouse", "cdc"),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_ORDER = {name: place for place, name in enumerate(_PANEL_OF)}


class Table(rich.table.Table):
    """A table that folds long cells into the next line; rich by itself would cut partitions and paths short."""

    def add_column(self, *words: Any, **options: Any) -> None:
        """Add a column as rich does, with `overflow="fold"` unless the caller says otherwise."""
        super().add_column(*words, **{"overflow": "fold", **options})


def open_console() -> Console:
    """Return a console as wide as the terminal; without a terminal and COLUMNS, one of 160 columns."""
    # Without emoji: rich would make a picture of a part of a value such as 00:ab:12, or of SQL such as ':id:'.
    console = Console(emoji=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_FILE_COLUMNS, emoji=False)


def open_error_console() -> Console:
    """Return a console for what is said beside the output: errors and progress."""
    return Console(stderr=True, emoji=False)


def without_secrets(value: object) -> str:
    """Return a text, such as that of an error, without the passwords of the addresses in it."""
    from varve.services.secrets import redacted

    return redacted(str(value))


class CommandPanels(TyperGroup):
    """Lists the commands by what they are for; those that a project adds stand first, in a panel of their own."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, as they are shown."""
        return sorted(super().list_commands(ctx), key=lambda name: _ORDER.get(name, -1))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, with its panel, and with a help whose lines break where the terminal ends."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            command.rich_help_panel = _PANEL_OF.get(cmd_name)
            _unbreak(command)
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command; where it was given an option that belongs before its name, say so."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer's error for an option that a command does not have, whose class is private to it.
            unknown: Any = error
            name = getattr(unknown, "option_name", None)
            if name in {option for own in self.params for option in own.opts}:
                unknown.message += f". Write it before the command: varve {name} ... {ctx.invoked_subcommand} ..."
            raise


def _unbreak(command: Any) -> None:
    """Join the lines of each paragraph: typer keeps the line breaks of a docstring in all but the first."""
    if command.help:
        command.help = "\n\n".join(" ".join(lines.split()) for lines in command.help.split("\n\n"))
    for subcommand in getattr(command, "commands", {}).values():
        _unbreak(subcommand)
