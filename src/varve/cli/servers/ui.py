"""`varve ui`: the Dagster UI, its daemon and our console, as children of one process.

Not here: the services that they need (services.py), and the pages of the console (varve/cli/observe/console).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from varve.cli.context import chosen_project, chosen_settings
from varve.cli.files.reloading import Reloader
from varve.cli.servers.services import up
from varve.dagster.instance import dagster_home
from varve.model.errors import ServiceUnavailable
from varve.services.distribution import install_command
from varve.services.folders import environment_home
from varve.services.ports import refuse_taken_port
from varve.services.settings import LogFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.project import Project

# The children without which no run is launched, in the order in which they are started.
_NEEDED = ("dagster-webserver", "dagster-daemon")
# So many seconds may they take to end, and after so many it is said.
_MAY_TAKE, _IS_LONG = 30, 2


def serve_ui(
    console: Console,
    port: int | None,
    environment_name: str = "",
    *,
    console_port: int | None = None,
    with_console: bool = True,
) -> None:
    """Run the web server, the daemon and our console as children of this process, until one of them ends or Ctrl-C.

    The console listens on `console_port`, by default the port after the one of the UI; `with_console`: whether it is
    started. With the name of an environment its runs compute there, and Dagster has a home of its own for them. Raises
    ServiceUnavailable where the UI is not installed, and where the port is taken; VarveError without that environment.
    """
    from varve.cli.environments.work import opened

    settings = chosen_settings()
    programs = Path(sys.executable).parent
    if not (programs / "dagster-webserver").is_file():
        raise ServiceUnavailable(
            f"the Dagster UI is not installed: there is no dagster-webserver in {programs}. "
            f"Install it: {install_command('local')}"
        )
    chosen_port = port or settings.ui_port
    refuse_taken_port(chosen_port, setting="VARVE_UI_PORT", remedy="Choose another: varve ui --port 3010.")
    # The console shows production, which is not what an environment is for.
    has_console = with_console and not environment_name
    pages_port = _port_of_console(chosen_port, console_port) if has_console else None
    up(console)
    if environment_name:
        with opened(environment_name):
            home = environment_home(settings, environment_name)
        environment = {"DAGSTER_HOME": str(home), "VARVE_ENVIRONMENT": environment_name}
    else:
        environment = {"DAGSTER_HOME": str(dagster_home(settings))}
    environment = {**os.environ, **_for_children(chosen_project()), **environment}
    workspace = _workspace(chosen_project())
    log_format = ["--log-format", "json"] if settings.log_format is LogFormat.JSON else []
    web = [str(programs / "dagster-webserver"), "-h", "127.0.0.1", "-p", str(chosen_port), *workspace, *log_format]
    daemon = [str(programs / "dagster-daemon"), "run", *workspace, *log_format]
    # The children must not outlive this process. So SIGTERM of a supervisor ends it as Ctrl-C does, and so does SIGINT
    # even where a shell has started this process in the background with SIGINT ignored.
    for ending_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending_signal, signal.default_int_handler)
    pages = []
    if pages_port is not None:
        # The pages of assets lead there, unless a setting names another console.
        environment["VARVE_CONSOLE_URL"] = settings.console_url or f"http://127.0.0.1:{pages_port}"
        pages.append(
            [sys.executable, "-c", "from varve.cli.app import main; main()", "console", "--port", str(pages_port)]
        )
    # Dagster finds the module of workspace.yaml from where it is started.
    children = [subprocess.Popen(command, env=environment, cwd=settings.project) for command in (web, daemon, *pages)]
    of_what = f" of environment {environment_name}" if environment_name else ""
    console.print(f"Starting the Dagster UI{of_what}; Ctrl-C ends it.", highlight=False)
    is_up = False
    reloader = Reloader(_folders_of_definitions(), chosen_port)
    try:
        # The UI goes on where the console has ended: it has said why.
        while True:
            if ended := [name for name, child in zip(_NEEDED, children, strict=False) if child.poll() is not None]:
                how = ", ".join(f"{name} (exit code {children[_NEEDED.index(name)].returncode})" for name in ended)
                raise ServiceUnavailable(
                    f"{how} ended by itself, and the other processes of varve ui are ended with it: without one of "
                    "them no run is launched. What it has said stands above. Runs that were under way go on from what "
                    "is there when you start it again: varve ui"
                )
            try:
                children[0].wait(1)
            except subprocess.TimeoutExpired:
                if not is_up and (is_up := _serves(chosen_port)):
                    console.print(f"The Dagster UI{of_what} is at http://127.0.0.1:{chosen_port}", highlight=False)
                if reloader.look():
                    console.print("A file has changed: the definitions are loaded anew.", highlight=False)
    except KeyboardInterrupt:
        console.print("Stopping the UI; PostgreSQL and Spark stay up (varve down stops them).")
    finally:
        _end(children, console)


def _for_children(project: Project) -> dict[str, str]:
    """The project, and folders in full: they may be relative to the folder of this process, not its children's."""
    settings = project.settings
    folders = {
        "VARVE_HOME": settings.home_dir,
        "VARVE_LAKE_ROOT": settings.lake,
        "VARVE_LANDING_ROOT": settings.landing,
    }
    given = {name: str(folder) for name, folder in folders.items() if os.environ.get(name)}
    return {**given, **project.environment}


def _workspace(project: Project) -> list[str]:
    """The words that tell Dagster what to load: the project's workspace.yaml, or its definitions where it has none."""
    folder = project.settings.project
    if (file := folder / "workspace.yaml").is_file():
        return ["-w", str(file)]
    return ["-m", project.definitions, "-d", str(folder)]


def _serves(port: int) -> bool:
    """Whether the web server on the port answers; asked of itself, whatever proxy the environment names."""
    connection = HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/server_info")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _end(children: Sequence[subprocess.Popen[bytes]], console: Console) -> None:
    """End the children: they may finish what they do, for half a minute, unless somebody presses Ctrl-C again."""
    for child in children:
        child.send_signal(signal.SIGINT)
    ends, is_told = time.monotonic() + _MAY_TAKE, False
    try:
        while left := [child for child in children if child.poll() is None]:
            if (seconds := ends - time.monotonic()) <= 0:
                break
            if not is_told and seconds < _MAY_TAKE - _IS_LONG:
                names = " and ".join(_name_of(child) for child in left)
                console.print(
                    f"Waiting for {names} to end, {_MAY_TAKE} s at most; Ctrl-C ends them at once.", highlight=False
                )
                is_told = True
            with suppress(subprocess.TimeoutExpired):
                left[0].wait(min(seconds, 1))
    except KeyboardInterrupt:
        console.print("They are ended at once.")
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()


def _name_of(child: subprocess.Popen[bytes]) -> str:
    """The name of what a child runs: the web server, the daemon, or our console."""
    program = Path(str(child.args[0] if isinstance(child.args, list) else child.args)).name
    return program if program in _NEEDED else "the console"


def _port_of_console(ui_port: int, console_port: int | None) -> int:
    """The port for the console beside the UI. Raises ServiceUnavailable where it is taken."""
    # Behind the last port there is none.
    port = console_port or (ui_port + 1 if ui_port < 65_535 else ui_port - 1)
    remedy = "Choose another: varve ui --console-port 3011; or leave the console out: --no-console."
    refuse_taken_port(port, setting="--console-port", remedy=remedy)
    return port


def _folders_of_definitions() -> list[Path]:
    """Return the folders whose files make the definitions: of the datasets, and of the package that Dagster loads."""
    project = chosen_project()
    package = project.settings.project / project.definitions.partition(".")[0]
    return [folder for folder in dict.fromkeys((project.assets, package)) if folder.is_dir()]
