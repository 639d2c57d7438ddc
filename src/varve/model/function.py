"""Functions of a project that its SQL queries may call: `varve.function`, and what is known of one before an import.

Not here: finding them in the files (varve/sql/code/functions.py), and giving them to Spark (varve/dagster/assets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from varve.model.errors import VarveError
from varve.model.schema import ColumnType

NEEDS_BOTH = "a function of Java has both a jar and a java_class"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def function(*, returns: str, jar: str = "", java_class: str = "") -> Callable[[_Function], _Function]:
    """Let the SQL queries of the project call a Python function by its name; the function itself is not changed.

    With a jar, queries call a function of Java instead, and the Python function only names its arguments.

    Args:
        returns: the Spark SQL type of what it returns, as a literal: "DOUBLE". The type may be read without importing.
        jar: the file that has the class, relative to the project's folder, as a literal.
        java_class: the full name of a class that implements one of Spark's interfaces `UDF0` to `UDF22`, as a literal.

    Raises VarveError where `returns` is no type, and where a jar is given without a class or the other way round.
    """
    ColumnType(returns)
    if bool(jar) != bool(java_class):
        raise VarveError(NEEDS_BOTH)
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
        code: its text with whatever it needs of the project, without comments and layout; of one in a jar, its class
            and a hash of the jar.
        fault: why it cannot be used; "" where it can.
        jar: the file that has it, relative to the project's folder; "" for a function of Python.
        java_class: the full name of its class in the jar.
    """

    name: str
    module: str
    place: str
    returns: str = ""
    least: int = 0
    most: int | None = None
    code: str = ""
    fault: str = ""
    jar: str = ""
    java_class: str = ""

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
