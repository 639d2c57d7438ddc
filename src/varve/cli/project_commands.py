"""The commands that a project adds to `varve`: [tool.varve] commands = ["MODULE"], a module with a Typer `app`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cli.printing import open_error_console, without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer


def add_commands_of_project(main_app: typer.Typer, words: Sequence[str]) -> None:
    """Give `varve` the commands that the project of the command line `words` brings itself.

    There are none where there is no project yet. A module of them that fails is told on stderr, and left out: the
    commands of Varve, `varve down` among them, must not depend on it.
    """
    from varve.project import NoProject, Project

    try:
        project = Project.find(_project_of(words))
    except NoProject:
        # The command that needs one says so.
        return
    groups = {group.name: group.typer_instance for group in main_app.registered_groups}
    for name in project.commands:
        try:
            project_app: typer.Typer = project.module(name).app
        except Exception as error:  # noqa: BLE001 - whatever the module of somebody else raises
            reason = str(error) if isinstance(error, NoProject) else f"{type(error).__name__}: {error}"
            message = f"{project.file} names {name} for commands of its own, and it cannot be used: {reason} Mend it."
            open_error_console().print(without_secrets(message), markup=False, highlight=False, soft_wrap=True)
            continue
        main_app.registered_commands += project_app.registered_commands
        for group in project_app.registered_groups:
            own_group = groups.get(group.name)
            if own_group is None or group.typer_instance is None:
                main_app.registered_groups.append(group)
            else:
                own_group.registered_commands += group.typer_instance.registered_commands


def _project_of(words: Sequence[str]) -> str | None:
    """The folder of `--project FOLDER` or `--project=FOLDER` before the name of a command; None where it has none."""
    for place, word in enumerate(words):
        if word == "--project":
            return words[place + 1] if place + 1 < len(words) else None
        if word.startswith("--project="):
            return word.removeprefix("--project=")
        if not word.startswith("-") and (place == 0 or words[place - 1] != "--deployment"):
            # The options of the command itself, and of the program that `varve psql` becomes, come after it.
            return None
    return None
