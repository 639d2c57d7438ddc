"""Functions of a project that its SQL queries may call: `varve.function`, and what is known of one before an import.

Not here: finding them in the files (varve/sql/code/functions.py), and giving them to Spark (varve/dagster/assets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from varve.model.schema import ColumnType

_Function = TypeVar("_Function", bound=Callable[..., Any])


def function(*, returns: str) -> Callable[[_Function], _Function]:
    """Let the SQL queries of the project call a Python function by its name; the function itself is not changed.

    Args:
        returns: the Spark SQL type of what it returns, as a literal: "DOUBLE". The type may be read without importing.

    Raises VarveError where that is no type.
    """
    ColumnType(returns)
    return lambda declared: declared


@dataclass(frozen=True)
class SqlFunction:
    """A function that a Python file declares for the queries of its project.

    Attributes:
        module: the module that has it, below the project's folder: `assets.prices`.
        place: `file:line` of its declaration, relative to the project's folder.
        returns: the type of its result in its canonical spelling.
        least: the smallest number of arguments that it takes.
        most: the largest; None: any number.
        code: its text with whatever it needs of the project, without comments and layout.
        fault: why it cannot be used; "" where it can.
    """

    name: str
    module: str
    place: str
    returns: str = ""
    least: int = 0
    most: int | None = None
    code: str = ""
    fault: str = ""

    @property
    def arguments(self) -> str:
        """How many arguments it takes, as a phrase: `1 argument`, `1 to 3 arguments`."""
        if self.most is None:
            return f"at least {self.least} argument{'' if self.least == 1 else 's'}"
        count = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{count} argument{'' if count == '1' else 's'}"

    @property
    def meaning(self) -> tuple[str, ...]:
        """Everything of it that determines the value of a call."""
        return self.name.lower(), self.returns, self.code
