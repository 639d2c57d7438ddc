"""Runs a program by spark-submit: its settings, its command line, its environment, and its log while it runs.

Not here: what the program reads and writes (programs.py), and how its passwords are kept off the command line
(varve/services/secrets.py).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from varve.model.errors import VarveError
from varve.services.jvm.java import java_home
from varve.services.secrets import spark_properties
from varve.services.spark import SESSION_CONF
from varve.services.spark_server import static_conf
from varve.sql.code.foreign import program as find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.services.settings import Settings

TAIL = 25
# Environment variables of this process' own Spark session. With them, the program would connect to our Spark server.
_SESSION_VARIABLES = (
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    "SPARK_API_MODE", "SPARK_TESTING", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS",
)  # fmt: skip
# Settings of the embedded metastore. Only one process at a time can open it, and that is Varve's own Spark server.
_METASTORE_SETTINGS = ("spark.sql.catalogImplementation", "spark.hadoop.javax.", "spark.driver.extraJavaOptions")
_SECONDS_TO_END = 10


@dataclass(frozen=True)
class Program:
    """The program to run: a `.py` or a `.jar`, by its path or URI.

    Attributes:
        submit: options of spark-submit, by their names without dashes.
        conf: settings of the program's Spark.
        arguments: the program's own arguments, which follow the folder.
    """

    path: str
    submit: Mapping[str, str]
    conf: Mapping[str, str]
    arguments: Sequence[str] = ()


def arguments(text: str | None) -> list[str]:
    """Return the words of the option `args`, as a shell splits them."""
    return shlex.split(text or "")


def followed(settings: Settings, program: Program, folder: str) -> tuple[int, Sequence[str]]:
    """Run a program to its end, and return its exit code and the last lines of its log."""
    defaults, own = settings_of(settings, program, folder), own_properties(settings, program)
    with spark_properties(defaults, also=own, conf=program.conf) as properties_file:
        return _run_to_end(
            command(settings, program, folder, properties_file), environment(settings, program), settings.project
        )


def settings_of(settings: Settings, program: Program, folder: str) -> dict[str, str]:
    """Return the settings of the program's Spark."""
    master = _master(settings, program)
    conf = {**SESSION_CONF, **static_conf(settings), "spark.app.name": f"varve {Path(program.path).name}"}
    if settings.hive_metastore_uri is None:
        conf = {name: value for name, value in conf.items() if not name.startswith(_METASTORE_SETTINGS)}
    if master.startswith("local"):
        # Tables that the program may save are removed with the folder.
        conf["spark.sql.warehouse.dir"] = f"{folder}/warehouse"
    else:
        # On a cluster, the cluster's own configuration decides these settings.
        our_prefixes = ("spark.driver.", "spark.sql.warehouse")
        conf = {name: value for name, value in conf.items() if not name.startswith(our_prefixes)} | settings.spark_conf
    return {**conf, **program.conf}


def own_properties(settings: Settings, program: Program) -> Path | None:
    """Return the properties file that the dataset itself names, or None. Raises VarveError where it is not there."""
    if (named := program.submit.get("properties_file")) is None:
        return None
    if not (file := settings.project / named).is_file():
        raise VarveError(f"{program.path}: there is no file {file}, which its option properties_file names.")
    return file


def command(settings: Settings, program: Program, folder: str, conf: str) -> list[str]:
    """Return the command line of the spark-submit of the installed PySpark; `conf` is the path of its properties file.

    Settings are not written into the command line, which everybody on the machine may read: some are passwords.
    """
    import pyspark

    own_options = ("master", "properties_file")
    options = [
        ("master", _master(settings, program)),
        *((name, value) for name, value in program.submit.items() if name not in own_options),
        ("properties_file", conf),
    ]
    # spark-submit ignores a cluster's default settings when a properties file is given, unless it is told to load them.
    defaults = [] if "properties_file" in program.submit else ["--load-spark-defaults"]
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(argument for name, value in options for argument in (f"--{name.replace('_', '-')}", value)),
        *defaults,
        str(find_program(program.path, settings.project) or program.path),
        folder,
        *program.arguments,
    ]


def environment(settings: Settings, program: Program) -> dict[str, str]:
    """Return the environment of the program: this process' one, with a Java, without the variables of our session."""
    variables = {name: value for name, value in os.environ.items() if name not in _SESSION_VARIABLES}
    variables["PYTHONPATH"] = os.pathsep.join([str(settings.project), *filter(None, [variables.get("PYTHONPATH")])])
    # The program's log shall appear while it is written, and in order.
    variables["PYTHONUNBUFFERED"] = "1"
    is_local = (program.submit.get("master") or settings.spark_master or "local").startswith("local")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        # On a cluster, executors may have another Python than this process.
        variables[name] = sys.executable if is_local else variables.get(name) or sys.executable
    if is_local:
        variables.pop("SPARK_HOME", None)
        variables.pop("SPARK_CONF_DIR", None)
        variables["JAVA_HOME"] = str(java_home(settings.home_dir))
        variables.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def _master(settings: Settings, program: Program) -> str:
    return program.submit.get("master") or settings.spark_master or "local[*]"


def _run_to_end(
    command_line: Sequence[str], environment_variables: Mapping[str, str], folder: Path
) -> tuple[int, Sequence[str]]:
    """Run a command to its end, and return its exit code and the last lines of its log.

    The log is copied to stderr, where Dagster captures it.
    """
    tail: deque[str] = deque(maxlen=TAIL)
    process = subprocess.Popen(
        command_line,
        env=dict(environment_variables),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With a session of its own, the program's JVM and Python can be ended together.
        start_new_session=True,
    )
    assert process.stdout is not None
    # A thread reads the log: processes that the program leaves in the background may keep the pipe open after its end.
    reader = threading.Thread(target=_copy_log, args=(process.stdout, tail), daemon=True)
    reader.start()
    try:
        exit_code = process.wait()
    finally:
        _end_process_group(process)
        reader.join(_SECONDS_TO_END)
    return exit_code, tail


def _copy_log(lines: IO[str], tail: deque[str]) -> None:
    with lines:
        for line in lines:
            sys.stderr.write(line)
            tail.append(line.rstrip("\n"))


def _end_process_group(process: subprocess.Popen[str]) -> None:
    """End the program, which still runs where the run was cancelled, and all processes that it has started."""
    for end_signal in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, end_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
