"""The files of deploy/, read as Docker and Compose read them: images, and the services that run them.

Not here: what must hold of them (test_kit.py), and running them as processes (processes.py).
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.project import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DEPLOY = ROOT / "deploy"
IMAGES = sorted((DEPLOY / "images").glob("*.Dockerfile"))
COMPOSE = DEPLOY / "compose" / "compose.yaml"
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?([-?])([^}]*))?\}|(\w+))")


@dataclass(frozen=True)
class Copied:
    """A COPY line: from the build's context, or from another stage."""

    sources: tuple[str, ...]
    target: str
    stage: str | None


@dataclass
class Stage:
    """One FROM of a Dockerfile and what follows it.

    Attributes:
        image: what it begins from, with build arguments in place: an image, or the name of an earlier stage.
    """

    image: str
    name: str | None
    environment: dict[str, str] = field(default_factory=dict)
    copied: list[Copied] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    user: str | None = None
    folder: str = "/"
    command: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Image:
    """A Dockerfile."""

    file: Path
    stages: tuple[Stage, ...]

    @property
    def final(self) -> Stage:
        """The stage that is the image."""
        return self.stages[-1]


@dataclass(frozen=True)
class Service:
    """A service of the compose file, with variables in place.

    Attributes:
        image: its own Dockerfile; None where the image is somebody else's.
        health: the command that ends with 0 where the service is up.
        depends: the condition under which it may start, by the name of another service.
    """

    name: str
    image: Image | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...]
    depends: Mapping[str, str]
    values: Mapping[str, Any]


@cache
def image(file: Path) -> Image:
    """A Dockerfile, read."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            _read(word, rest.strip(), arguments, stages)
    return Image(file, tuple(stages))


def _read(word: str, rest: str, arguments: dict[str, str], stages: list[Stage]) -> None:
    if word == "ARG":
        name, _, default = rest.partition("=")
        arguments.setdefault(name, default)
        return
    if word == "FROM":
        source, *named = interpolated(rest, arguments).split(" AS ")
        stages.append(Stage(source, named[0] if named else None))
        return
    stage = stages[-1]
    match word:
        case "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                stage.environment[name] = value
        case "COPY":
            words = rest.split()
            named = [each.removeprefix("--from=") for each in words if each.startswith("--from=")]
            *sources, target = [each for each in words if not each.startswith("--")]
            stage.copied.append(Copied(tuple(sources), target, named[0] if named else None))
        case "RUN":
            stage.commands.append(rest)
        case "USER":
            stage.user = rest
        case "WORKDIR":
            stage.folder = rest
        case "CMD":
            stage.command = json.loads(rest)
        case "EXPOSE":
            pass
        case _:
            raise AssertionError(f"{word} is not read here yet")


def compose_values() -> dict[str, Any]:
    """The compose file with its anchors resolved and its variables as they are written."""
    values = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    assert isinstance(values, dict)
    return values


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """The services of the compose file, with these variables as a .env file would have them."""
    return {name: _service(name, values, variables) for name, values in compose_values()["services"].items()}


def _service(name: str, values: Mapping[str, Any], variables: Mapping[str, str]) -> Service:
    built = (
        image(COMPOSE.parent / values["build"]["context"] / values["build"]["dockerfile"])
        if "build" in values
        else None
    )
    command = values.get("command") or (built.final.command if built else [])
    kind, *health = values.get("healthcheck", {}).get("test", ["CMD"])
    assert kind == "CMD", name
    return Service(
        name,
        built,
        tuple(interpolated(str(word), variables) for word in command),
        {key: interpolated(str(value), variables) for key, value in values.get("environment", {}).items()},
        tuple(health),
        {other: wanted["condition"] for other, wanted in values.get("depends_on", {}).items()},
        values,
    )


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """A text with `${X}`, `${X:-default}` and `${X:?what to do}` replaced. Raises KeyError where X must be given."""

    def replaced(match: re.Match[str]) -> str:
        name, kind, rest = match[1] or match[4], match[2], match[3]
        if variables.get(name):
            return variables[name]
        if kind == "-":
            return rest
        raise KeyError(f"{name}: {rest}")

    return _VARIABLE.sub(replaced, text)


def dependencies(all_services: Mapping[str, Service]) -> TopologicalSorter[str]:
    """The names of the services, each after those that it depends on."""
    return TopologicalSorter({name: set(each.depends) for name, each in all_services.items()})


def in_order(all_services: Mapping[str, Service]) -> Sequence[Service]:
    """The services, each after those that it depends on."""
    return [all_services[name] for name in dependencies(all_services).static_order()]
