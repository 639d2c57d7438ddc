"""Work in an environment that somebody drops meanwhile ends with that reason, whatever it is that fails by it.

Not here: dropping one (environments.py).
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg

from varve.catalog.environments.environments import Environments
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Callable


class _WorksInOne(Protocol):
    """What has the name of an environment, and a connection to its catalog in autocommit mode."""

    @property
    def name(self) -> str: ...

    @property
    def connection(self) -> psycopg.Connection: ...


_Worker = TypeVar("_Worker", bound=_WorksInOne)
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


class DroppedMeanwhile(VarveError):
    """An environment was dropped while it was worked in."""


def unless_dropped(
    method: Callable[Concatenate[_Worker, _Given], _Made],
) -> Callable[Concatenate[_Worker, _Given], _Made]:
    """Make a method raise DroppedMeanwhile, in the place of what it raises, where its environment is gone."""

    @wraps(method)
    def working(worker: _Worker, /, *args: _Given.args, **named: _Given.kwargs) -> _Made:
        try:
            return method(worker, *args, **named)
        except DroppedMeanwhile:
            raise
        except Exception as error:
            if _exists(worker):
                raise
            raise DroppedMeanwhile(
                f"environment {worker.name} was dropped while this command worked in it. What was computed goes with a "
                f"sweep. A command that makes its environments itself makes a new one when it is typed again; else: "
                f"varve env create {worker.name}"
            ) from error

    return working


def _exists(worker: _WorksInOne) -> bool:
    """Whether the environment is there, as far as can be told: of a lost connection the work itself says more."""
    try:
        return any(worker.name == environment.name for environment in Environments(worker.connection).all())
    except psycopg.Error:
        return True
