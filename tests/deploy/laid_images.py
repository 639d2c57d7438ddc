"""The folders of hosts that stand for images: what the COPY lines of a Dockerfile take, at the paths of the image.

Nothing is built: this environment, Spark's package, Java and the executors' Python are linked to where the stages that
an image copies from would have put them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.deploy.executor_python import executor_python
from tests.support.project import ROOT
from varve.services.jvm.java import java_home

if TYPE_CHECKING:
    from tests.deploy.images import Image, Service

SPARK_HOME = Path(pyspark.__file__).parent
# What Ivy fetches for the image; the 700 MB stay in its own cache.
IVY = re.compile(r"\$IVY -dependency (\S+ \S+) \"?\$\{(\w+)\}")
# An image has what it adds to a system in these folders.
FOLDERS = ("opt", "srv")


class ImageFolders:
    """The folders of all hosts, and what they share."""

    def __init__(self, folder: Path, executor_packages: tuple[str, ...] | None) -> None:
        self._folder = folder
        self._executor_packages = executor_packages

    def laid(self, service: Service) -> dict[str, Path]:
        """The folders of a new host of this service, by the paths at which the host has them."""
        root = self._folder / "hosts" / service.name
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        if service.image is not None:
            self._lay(service.image, root)
        return {f"/{name}": root / name for name in FOLDERS}

    @cached_property
    def _python(self) -> Path:
        return executor_python(self._folder / "python", packages=self._executor_packages).parent.parent

    @cached_property
    def _java(self) -> Path:
        return java_home(self._folder)

    def _lay(self, image: Image, root: Path) -> None:
        for copied in image.final.copied:
            if copied.stage is not None:
                (link := root / copied.target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(self._of_a_stage(image, copied.target))
                continue
            for source in copied.sources:
                _copy(ROOT / source, root / image.final.folder.lstrip("/"), root, copied.target)
        if any("/opt/spark" in command for command in image.final.commands):
            (root / "opt/spark").symlink_to(SPARK_HOME)
        for path in re.findall(r"/srv/[\w/]+", " ".join(image.final.commands)):
            (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _of_a_stage(self, image: Image, target: str) -> Path:
        match target:
            case "/opt/varve":
                return Path(sys.prefix)
            case "/opt/python":
                return self._python
            case "/opt/java/openjdk":
                return self._java
            case "/opt/spark-jars":
                return self._jars(image)
        raise AssertionError(f"{image.file.name}: {target} is not known here yet")

    def _jars(self, image: Image) -> Path:
        """What the image fetches by the Ivy that comes with Spark, at the versions of its build arguments."""
        if (folder := self._folder / "jars").exists():
            return folder
        folder.mkdir()
        text = image.file.read_text(encoding="utf-8")
        (ivy,) = (SPARK_HOME / "jars").glob("ivy-*.jar")
        for package, argument in IVY.findall(text):
            (version,) = re.findall(rf"^ARG {argument}=(\S+)", text, re.MULTILINE)
            subprocess.run(
                [self._java / "bin" / "java", "-jar", ivy, "-confs", "default", "-types", "jar", "bundle",
                 "-dependency", *package.split(), version, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"],
                check=True, capture_output=True, timeout=600,
            )  # fmt: skip
        return folder


def _copy(source: Path, folder: Path, root: Path, target: str) -> None:
    """One source of a COPY line, into a folder where the target ends with a slash, under its name otherwise."""
    to = (root / target.lstrip("/")) if target.startswith("/") else folder / target
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        return
    if target.endswith("/"):
        to.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, to)
