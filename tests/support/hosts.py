"""Hosts for tests: namespaces of Linux with a network, a name, processes and folders of their own, joined by a switch.

What runs on a host sees the others by their names and addresses, and nothing of this machine's network. A host lives as
long as its first process, which ends with the process that made it, whatever happens to that: nothing is left behind.

Not here: what runs on them (tests/deploy/processes.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

# `$0` is the host's name, the words are folders. Its first process takes in the orphans of the others.
_BEGIN = """
set -e
hostname "$0"
while [ "$#" -gt 1 ]; do mount --bind "$1" "$2"; shift 2; done
ip link set lo up
echo up
while :; do sleep infinity & wait; done
"""
_NAMESPACES = ("--mount", "--uts", "--net", "--pid")
COMMAND_SECONDS = 60


class NoHosts(AssertionError):
    """This machine does not make namespaces; the message says why and what to do."""


@dataclass(frozen=True)
class Host:
    """A host: `first` is the process id of its first process, as this machine counts."""

    name: str
    address: str
    first: int
    holder: subprocess.Popen[str] = field(repr=False)

    def words(self, command: Sequence[str], folder: str = "/") -> list[str]:
        """The words that run a command on this host, in a folder of its own."""
        return [_program("nsenter"), "--target", str(self.first), *_NAMESPACES, f"--wdns={folder}", *command]

    def run(self, *command: str) -> None:
        """Run a command that must succeed, with what this machine has on its PATH."""
        _checked(self.words(command))

    def kill_processes(self) -> None:
        """End all that runs on it at once, as a lack of memory would; the host itself goes on."""
        subprocess.run(self.words(["kill", "-KILL", "-1"]), check=False, capture_output=True, timeout=COMMAND_SECONDS)

    def end(self) -> None:
        """Switch the host off: its processes, folders and links are gone. It may be off already."""
        if self.holder.poll() is not None:
            return
        with suppress(ProcessLookupError):
            # The kernel ends the others with it.
            os.kill(self.first, signal.SIGKILL)
        self.holder.wait(COMMAND_SECONDS)
        for pipe in (self.holder.stdout, self.holder.stderr):
            if pipe is not None:
                pipe.close()


@dataclass
class Network:
    """A switch, its hosts, and one link to this machine, by which tests reach them at their addresses.

    Attributes:
        folder: has the file of all names, which every host sees as its /etc/hosts.
    """

    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _addresses_given: int = 1

    def __enter__(self) -> Self:
        """Make the switch. Raises NoHosts where this machine does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_names()
        switch = self.switch
        try:
            switch.run("ip", "link", "add", "switch", "type", "bridge")
            switch.run("ip", "link", "set", "switch", "up")
            self._connect(self._own_link, os.getpid(), self._own_link)
            _checked([_program("ip"), "address", "add", f"{self._prefix}.1/24", "dev", self._own_link])
            _checked([_program("ip"), "link", "set", self._own_link, "up"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End all hosts, and the switch with its links."""
        self.close()

    def close(self) -> None:
        """End all hosts, and the switch with its links."""
        # The kernel takes away what is left of a network when it has time.
        ours = [_program("ip"), "link", "delete", self._own_link]
        subprocess.run(ours, check=False, capture_output=True, timeout=COMMAND_SECONDS)
        for host in (*self.hosts.values(), self.switch):
            host.end()

    @cached_property
    def switch(self) -> Host:
        """The host that has the bridge."""
        return _begun("switch", "", {})

    def add(self, name: str, folders: Mapping[str, Path], *, takes_name: str | None = None) -> Host:
        """Make a host that has these folders of this machine at these paths.

        `takes_name`: from now on this name, which another host had, leads to this one.
        """
        self._addresses_given += 1
        address = f"{self._prefix}.{self._addresses_given}"
        host = _begun(name, address, {**folders, "/etc/hosts": self._file})
        self.hosts[name] = host
        self._connect(_link(host), host.first, "eth0")
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        self._names[name] = address
        if takes_name is not None:
            self._names[takes_name] = address
        self._write_names()
        return host

    def cut(self, host: Host) -> None:
        """Pull the cable: nobody is told, packets go nowhere."""
        self.switch.run("ip", "link", "set", _link(host), "down")

    def mend(self, host: Host) -> None:
        """Put the cable back."""
        self.switch.run("ip", "link", "set", _link(host), "up")

    def address(self, name: str) -> str:
        """The address that a name leads to."""
        return self._names[name]

    def _connect(self, port: str, process: int, name: str) -> None:
        """A cable from a port of the switch to the network of a process, where it has this name."""
        add = [_program("ip"), "link", "add", port, "type", "veth", "peer", "name", name, "netns", str(process)]
        # The process id is this machine's, so only the network of the switch is entered.
        _checked([_program("nsenter"), "--target", str(self.switch.first), "--net", *add])
        self.switch.run("ip", "link", "set", port, "master", "switch")
        self.switch.run("ip", "link", "set", port, "up")

    def _write_names(self) -> None:
        # In place: the hosts have bound this very file.
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._names.items())]
        self._file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def _file(self) -> Path:
        return self.folder / "hosts"

    @property
    def _own_link(self) -> str:
        return f"varve{os.getpid()}"[:15]

    @property
    def _prefix(self) -> str:
        # Of each process of the suite its own.
        return f"10.77.{os.getpid() % 250 + 1}"


def _link(host: Host) -> str:
    return f"host{host.address.rpartition('.')[2]}"


def _begun(name: str, address: str, folders: Mapping[str, Path]) -> Host:
    pairs = [word for at, source in folders.items() for word in (str(source), at)]
    holder = subprocess.Popen(
        # The kernel ends the first word's process with ours, `unshare` then the host.
        [_program("setpriv"), "--pdeathsig", "KILL", _program("unshare"), *_NAMESPACES, "--fork", "--kill-child=KILL",
         "--mount-proc", "sh", "-c", _BEGIN, name, *pairs, "end"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stderr is not None
    if holder.stdout.readline() != "up\n":
        said = holder.communicate(timeout=COMMAND_SECONDS)[1].strip()
        raise NoHosts(
            f"This machine does not make hosts of namespaces: {said}. Run these tests on Linux as root, with"
            " CAP_SYS_ADMIN and CAP_NET_ADMIN (in a container: --privileged)."
        )
    (first,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text(encoding="ascii").split()
    return Host(name, address, int(first), holder)


def _program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        raise NoHosts(f"There is no {name} on this machine; Debian has it in util-linux or iproute2.")
    return path


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
