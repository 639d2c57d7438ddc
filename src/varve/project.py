"""`Project`: one pipeline's folders, settings and deployments, found upward from the working directory.

It is a value, given to every command, sensor and run: two projects with different homes work in one process.

Not here: the datasets of a project (varve/dagster/discovery.py), and what each setting means (services/settings.py).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varve.model.errors import VarveError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from varve.services.settings import SensorSettings, Settings

PROJECT_VARIABLE = "VARVE_PROJECT"
DEPLOYMENT_VARIABLE = "VARVE_DEPLOYMENT"
_FILES = ("varve.toml", "pyproject.toml")
# What [tool.varve] may have, and of which type: `list` is a list of texts.
_KEYS: dict[str, tuple[type, str]] = {
    "assets": (str, 'assets = "FOLDER"'),
    "definitions": (str, 'definitions = "PACKAGE.MODULE"'),
    "commands": (list, 'commands = ["PACKAGE.MODULE"]'),
    "settings": (dict, "a table [tool.varve.settings]"),
    "deployments": (dict, "a table [tool.varve.deployments.NAME] for each"),
    "deployment": (str, 'deployment = "NAME"'),
}
# What begins with a scheme, also with one slash after it: file:/data.
_URI = re.compile(r"[A-Za-z][\w+.-]+:/")
# The settings that were read last, with what they were read from.
_KEPT: dict[str, tuple[object, Settings]] = {}


class NoProject(VarveError):
    """No project was found where one was looked for, or what was found cannot be used as one.

    Attributes:
        is_absent: whether there is none at all.
    """

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        self.is_absent = is_absent
        super().__init__(message)


@dataclass(frozen=True)
class Project:
    """One project. Two are equal where they lie in the same folder and are deployed alike.

    Attributes:
        root: the folder of the file that declares it; everything else is relative to it.
        assets: the folder of its datasets, SQL and Python files.
        definitions: the module whose `defs` Dagster loads.
        commands: modules with a Typer `app`, whose commands `varve` has as its own in this project.
        deployment: which of its deployments; None for the settings of the project alone.
        values: the settings that its file gives, by their names in `Settings`; the environment overrides each.
        file: where it is declared.
    """

    root: Path
    assets: Path = field(compare=False)
    definitions: str = field(default="pipeline_defs.definitions", compare=False)
    commands: tuple[str, ...] = field(default=(), compare=False)
    deployment: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def find(cls, start: str | Path | None = None, *, deployment: str | None = None) -> Project:
        """The project of a folder, or of the next folder above it that has one.

        Args:
            start: a folder or a file in it; None means `VARVE_PROJECT`, or else the working directory.
            deployment: one of its `[tool.varve.deployments.NAME]`; None means `VARVE_DEPLOYMENT`, or else the file's
                own `deployment`, if it has one.

        Raises NoProject where there is none, where one lies in another, and where its file cannot be read.
        """
        begin = Path(start or os.environ.get(PROJECT_VARIABLE) or Path.cwd()).expanduser().resolve()
        if not begin.exists():
            raise NoProject(f"{begin} does not exist, so that no project is there. Name a project's folder.")
        folder = begin.parent if begin.is_file() else begin
        declared = [table for parent in (folder, *folder.parents) if (table := declaration_in(parent)) is not None]
        if not declared:
            raise NoProject(
                f"no project: neither {folder} nor a folder above it has a varve.toml, or a pyproject.toml with "
                "[tool.varve]. Begin one with `varve init NAME`, or name the folder of one: --project FOLDER.",
                is_absent=True,
            )
        if len(declared) > 1:
            raise NoProject(
                f"two projects, one in the other: {declared[0][0]} and {declared[1][0]}. Take [tool.varve] out of one "
                "of them, or move it."
            )
        return cls._of(*declared[0], deployment)

    @classmethod
    def _of(cls, file: Path, table: Mapping[str, Any], deployment: str | None) -> Project:
        for key in table:
            if key not in _KEYS:
                raise NoProject(
                    f"{file}: [tool.varve] has no {key!r}.{nearest(key, _KEYS)} It may have {', '.join(_KEYS)}."
                )
        for key, (kind, example) in _KEYS.items():
            if key in table and not _is_of(table[key], kind):
                raise NoProject(f"{file}: [tool.varve] {key} = {table[key]!r}: write {example}.")
        root, deployments = file.parent, table.get("deployments", {})
        for key, values in deployments.items():
            if not isinstance(values, dict):
                raise NoProject(f"{file}: [tool.varve] deployments.{key} = {values!r}: write a table of settings.")
        name = deployment or os.environ.get(DEPLOYMENT_VARIABLE) or table.get("deployment")
        if name is not None and name not in deployments:
            raise NoProject(
                f"{file} has no deployment {name!r}.{nearest(name, deployments)} It has "
                f"{', '.join(deployments) or 'none'}. Write [tool.varve.deployments.{name}]."
            )
        values = {**table.get("settings", {}), **(deployments[name] if name is not None else {})}
        return cls(
            root,
            root / table.get("assets", "assets"),
            table.get("definitions", "pipeline_defs.definitions"),
            tuple(table.get("commands", ())),
            name,
            values,
            file,
        )

    @property
    def settings(self) -> Settings:
        """The settings as they are now: the environment's, else those of the file, else the defaults."""
        from varve.services.settings import Settings

        given = self._given()
        variables = [(name, value) for name, value in os.environ.items() if name.upper().startswith("VARVE_")]
        asked = (repr(sorted(given.items())), *sorted(variables))
        # Reading them takes 4 ms, and a command asks a dozen times.
        if (kept := _KEPT.get("last")) is None or kept[0] != asked:
            kept = _KEPT["last"] = (asked, Settings(**given))
        return kept[1]

    @property
    def sensor_settings(self) -> SensorSettings:
        """Those that the definitions depend on; they can be had though another setting is wrong."""
        from varve.services.settings import SensorSettings

        given = self._given()
        return SensorSettings(**{name: given[name] for name in SensorSettings.model_fields if name in given})

    def _given(self) -> dict[str, Any]:
        from varve.services.settings import Settings

        values: dict[str, Any] = {**self.values}
        for name in values:
            if name not in Settings.model_fields:
                remedy = f"{nearest(name, Settings.model_fields)} docs/reference.md lists them."
                raise NoProject(f"{self.file}: there is no setting {name!r}.{remedy}")
        for name in ("home", "lake_root", "landing_root"):
            # Folders of the file are relative to it, wherever a command was started; URIs are left alone.
            if isinstance(value := values.get(name), str) and not _URI.match(value):
                values[name] = str(self.root / Path(value).expanduser())
        given = {name: value for name, value in values.items() if not os.environ.get(f"VARVE_{name.upper()}")}
        return {**given, "project": self.root}

    @property
    def warehouse_url(self) -> str:
        """The URL of its PostgreSQL, for psycopg and psql; the embedded server is started where it is the one.

        Raises ServiceUnavailable.
        """
        from varve.services.postgres import warehouse_url

        return warehouse_url(self.settings)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process that is started for this project finds it."""
        chosen = {DEPLOYMENT_VARIABLE: self.deployment} if self.deployment is not None else {}
        return {PROJECT_VARIABLE: str(self.root), **chosen}

    def importable(self) -> None:
        """Let Python find the project's modules, as Dagster does in its own processes."""
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))

    def module(self, name: str) -> ModuleType:
        """One of the project's modules, imported. Raises NoProject where there is none of that name."""
        self.importable()
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise NoProject(
                f"{self.file or self.root} names the module {name}, which Python does not find in {self.root}. "
                "Write it, or correct the name."
            ) from None
        place = self.root.joinpath(*name.split("."))
        written = [path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file()]
        imported = Path(module.__file__).resolve() if module.__file__ else None
        if written and imported not in [path.resolve() for path in written]:
            raise NoProject(
                f"{self.file or self.root} names the module {name}, which is {written[0]}, and Python finds "
                f"{imported or 'another package'} under that name. Rename one of them, or put {self.root} first on "
                "Python's path."
            )
        return module


def _is_of(value: object, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, kind)


def declaration_in(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The file in a folder that declares a project, and its table; None where there is none. Raises NoProject."""
    for name in _FILES:
        file = folder / name
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise NoProject(f"{file} cannot be read: {error}. Correct it.") from None
        tool = content.get("tool", {})
        table = content if name == "varve.toml" else tool.get("varve") if isinstance(tool, dict) else None
        if table is not None and not isinstance(table, dict):
            raise NoProject(f"{file}: tool.varve is {table!r}; write it as a table, [tool.varve].")
        if table is not None:
            return file, table
    return None
