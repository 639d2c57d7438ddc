"""Python programs in processes of their own, which need not import Dagster and Spark again: 3 of the 5 s of a command.

One process has imported the libraries, and nothing of ours. It forks for each program, which begins with the arguments,
the environment and the folder that it would have been started with, and ends as it would have ended.

A fork has no thread but the one that called it, and what the others held stays as it was: so there are no others.

Not here: what the programs are (tests/e2e/project.py).
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil

from tests.support.environment import clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIBRARIES = (
    "adbc_driver_postgresql.dbapi", "alembic.command", "croniter", "dagster._cli", "dagster._core.instance.factory",
    "dagster._core.storage.migration", "dagster._core.workspace.autodiscovery", "dagster._grpc.server",
    "dagster_dg_cli.cli", "dagster_postgres", "dagster_pyspark", "fastavro", "filelock",
    "fsspec.implementations.local", "pandas", "pendulum", "psutil", "psycopg", "pyarrow.parquet", "pydantic_settings",
    "pyspark.sql.connect.session", "pyspark.sql.datasource", "pyspark.sql.functions", "rich.console", "rich.table",
    "sqlalchemy", "sqlglot", "sqlglot.dialects.spark", "sqlglot.optimizer", "sqlglot.optimizer.annotate_types",
    "sqlglot.optimizer.qualify", "sqlglot.optimizer.simplify", "sqlglot.transforms", "tenacity", "typer",
    "upath.implementations.local", "yaml",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
# What lets these libraries start threads as they are imported.
WITHOUT_THREADS = {
    "GRPC_ENABLE_FORK_SUPPORT": "0", "JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """What a process is started with: the words after `python`, its folder and its environment."""

    words: Sequence[str]
    folder: str
    environment: Mapping[str, str]

    def run(self, output: IO[bytes], errors: IO[bytes] | None = None, *, seconds: float) -> int:
        """Run it to its end, with its outputs in a file, or in two; returns the exit code, or minus the signal.

        Raises TimeoutExpired, and the program is killed then.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(_address())
            asked = json.dumps({"words": self.words, "folder": self.folder, "environment": dict(self.environment)})
            socket.send_fds(connection, [b"\0"], [output.fileno(), (errors or output).fileno()])
            connection.sendall(asked.encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as answers:
                pid = int(answers.readline())
                connection.settimeout(seconds)
                try:
                    return int(answers.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(self.words), seconds) from None


def run_prepared(
    *words: str | Path, cwd: Path, env: Mapping[str, str], seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` does with outputs captured: a script of Python and its words, or `-m MODULE`, `-c TEXT`."""
    given = [str(word) for word in words]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = Program(given, str(cwd), env).run(output, errors, seconds=seconds)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(given, code, *texts)


@cache
def _address() -> str:
    """Where the process listens that has imported the libraries; it ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="varve-programs-")
    address = str(Path(folder.name) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, address], cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True,
        env=clean_environment() | WITHOUT_THREADS,
    )  # fmt: skip
    assert process.stdin is not None

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    deadline = time.monotonic() + 120
    while not Path(address).exists():
        assert process.poll() is None, "the process that starts programs has ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return address


@dataclass
class Starter:
    """The process that forks: who waits for which program."""

    listener: socket.socket
    waiting: dict[int, socket.socket] = field(default_factory=dict)

    def next_program(self) -> Program | None:
        """Return in a new process with the program that it shall be, or with None when nobody asks any more."""
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
        while True:
            ready, _, _ = select.select([self.listener, woken, sys.stdin], [], [])
            if woken in ready:
                os.read(woken, 1_000)
                self._tell_ends()
            if sys.stdin in ready:
                return None
            if self.listener in ready:
                connection, _ = self.listener.accept()
                program, outputs = _asked(connection)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for opened in (self.listener, connection, *self.waiting.values()):
                        opened.close()
                    os.close(woken)
                    os.close(waker)
                    _become(program, *outputs)
                    return program
                for opened in outputs:
                    os.close(opened)
                self.waiting[pid] = connection
                connection.sendall(f"{pid}\n".encode())

    def _tell_ends(self) -> None:
        while self.waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self.waiting.pop(pid) as connection:
                try:
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                except BrokenPipeError:
                    # Whoever asked has given up.
                    continue


def _asked(connection: socket.socket) -> tuple[Program, tuple[int, int]]:
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    with connection.makefile("r", encoding="utf-8") as lines:
        return Program(**json.loads(lines.readline())), (files[0], files[1])


def _become(program: Program, output: int, errors: int) -> None:
    """Give this process what it would have been started with."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
    for opened in (nothing, output, errors):
        os.close(opened)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    tempfile.tempdir = None
    # A program that ends by a signal says where.
    faulthandler.enable(2)
    # What the interpreter reads as it starts.
    sys.dont_write_bytecode = bool(program.environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[1:1] = filter(None, program.environment.get("PYTHONPATH", "").split(os.pathsep))


def _run(program: Program) -> None:
    """As `python WORDS` does."""
    # Other projects have tests of their own.
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    first, *rest = program.words
    if first == "-m":
        module, *rest = rest
        sys.argv = [module, *rest]
        sys.path[0] = program.folder
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif first == "-c":
        text, *rest = rest
        sys.argv = [first, *rest]
        sys.path[0] = ""
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as the interpreter does
    else:
        sys.argv = [first, *rest]
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    """Import, then fork for each program that is asked for; ends with whoever started this."""
    # ADBC imports it where it is there, and it starts threads; a program that needs it imports it itself.
    sys.modules["polars"] = None  # type: ignore[assignment]
    for name in LIBRARIES:
        importlib.import_module(name)
    del sys.modules["polars"]
    if sys.platform == "linux":
        assert psutil.Process().num_threads() == 1, "another thread would be missing in every program"
    assert not [name for name in sys.modules if name.partition(".")[0] == "varve"]
    # What is here already is no garbage of any program.
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"{sys.argv[1]}.begun")
        listener.listen()
        Path(f"{sys.argv[1]}.begun").rename(sys.argv[1])
        program = Starter(listener).next_program()
    if program is not None:
        _run(program)


if __name__ == "__main__":
    main()
