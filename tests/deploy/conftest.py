"""The stack of deploy/compose, on hosts of its own: started once for the tests of this folder that ask for it."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.processes import Stack
from tests.documents.pages import blocks
from tests.support.hosts import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the page types into containers: the service, and the words after it.
SWITCHED_ON = [
    shlex.split(command.partition(" exec ")[2])
    for block in blocks("console") if block.runner == "tests/deploy/test_stack.py"
    for command in block.commands if " exec " in command
]  # fmt: skip


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """All services, up and well, with the sensors that docs/deploy.md switches on."""
    assert {command[0] for command in SWITCHED_ON} == {"daemon"}
    folder = Path(tempfile.mkdtemp(prefix="varve-kit-"))
    folder.chmod(0o755)
    try:
        with Network(folder / "network") as network:
            found = Stack.of(folder, network)
            try:
                found.start()
                for service, *command in SWITCHED_ON:
                    done = found.run(service, *command)
                    assert done.returncode == 0, done.stdout
                yield found
            finally:
                found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
