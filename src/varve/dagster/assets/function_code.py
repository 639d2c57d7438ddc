"""The code of a Python function that computes a dataset: its version, and the text that a plan shows.

Not here: what a function needs of its module and of the project (varve/sql/code/python_text.py).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import re
import sys
import textwrap
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from varve.model.dataset import Dataset
from varve.model.errors import VarveError
from varve.sql.code.python_text import code_of_source
from varve.sql.code.version import dataset_meaning, version_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Values whose text says what they are, in each process alike.
_PLAIN = (
    str, bytes, int, float, bool, type(None), dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, PurePath,
    re.Pattern,
)  # fmt: skip
# So deep are values within values told.
_DEEPEST = 20


def code_of_function(dataset: Dataset, compute: Callable[..., Any]) -> tuple[str, str]:
    """The version of what a function computes, and what of it a plan shows as a diff.

    That is its own text, what it needs of the project, and, in the version, what it has enclosed: plain values,
    collections of them, dataclasses and enumerations by what they hold, functions by their code; of any other object
    only its class is known.

    Raises VarveError where Python has no text of the function.
    """
    source = source_text(compute)
    if not source:
        raise VarveError(
            f"dataset {dataset}: Python has no source text of the function {compute.__name__}, by which its version "
            "could be told. Write the function in a file, or give its version: code_version='1'."
        )
    code, needed = _code(compute)
    shown = f"{source}\n\n{needed}\n" if needed else source
    return version_of([*dataset_meaning(dataset), code, _Enclosed().of(compute)]), shown


def source_text(compute: Callable[..., Any]) -> str:
    """The text of a function; "" where Python has none, as for one that was typed into a shell."""
    try:
        return textwrap.dedent(inspect.getsource(compute))
    except (OSError, TypeError):
        return ""


def _code(compute: Callable[..., Any]) -> tuple[str, str]:
    """The code of a function and, by file, what it needs beside its text; of the one within, where it was decorated."""
    own = inspect.unwrap(compute)
    file = Path(inspect.getsourcefile(own) or "")
    source = source_text(own)
    if source[:1].isspace():
        # A text or a comment in its first column: what is left of the indent makes it no module.
        source = f"if True:\n{source}"
    return code_of_source(source, file, _import_root(file, own.__module__))


@dataclasses.dataclass
class _Enclosed:
    """What functions have enclosed, as something with the same text in each process.

    Each value is told once, however often it is met: functions may call each other, and objects know their parents.
    """

    # By identity; with the value itself, so that no other one gets its identity meanwhile.
    told: dict[int, tuple[Any, Any]] = dataclasses.field(default_factory=dict)

    def of(self, compute: Callable[..., Any], depth: int = 0) -> dict[str, Any]:
        """What a function, and each function around it that a decorator has put there, has enclosed, by name."""
        values: dict[str, Any] = {}
        while True:
            wrapped = getattr(compute, "__wrapped__", None)
            closed_over = inspect.getclosurevars(compute).nonlocals if inspect.isfunction(compute) else {}
            values |= {name: value for name, value in closed_over.items() if value is not wrapped}
            if wrapped is None:
                return {name: self._value(value, depth + 1) for name, value in sorted(values.items())}
            compute = wrapped

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            return value
        if isinstance(value, enum.Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, Dataset):
            return value.name
        kind = value if isinstance(value, type) else type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if id(value) not in self.told:
            if depth >= _DEEPEST:
                # Not kept: it may be met again less deep.
                return name
            # For where it is met within itself.
            self.told[id(value)] = value, name
            parts = self._collection(value, depth)
            if parts is None:
                parts = self._object(value, depth)
            self.told[id(value)] = value, name if parts is None else parts
        return self.told[id(value)][1]

    def _collection(self, value: Any, depth: int) -> Any:
        """The values of a collection; None for what is none."""
        inner = functools.partial(self._value, depth=depth + 1)
        if isinstance(value, Mapping):
            return {"of": sorted((repr(inner(key)), repr(inner(each))) for key, each in value.items())}
        if isinstance(value, AbstractSet):
            return {"all": sorted(repr(inner(each)) for each in value)}
        if isinstance(value, list):
            return [inner(each) for each in value]
        if isinstance(value, tuple):
            parts = tuple(inner(each) for each in value)
            return value if all(part is each for part, each in zip(parts, value, strict=True)) else parts
        return None

    def _object(self, value: Any, depth: int) -> Any:
        """What a dataclass holds, or the code of a function; None for any other object."""
        inner = functools.partial(self._value, depth=depth + 1)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: inner(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return type(value).__qualname__, fields
        if isinstance(value, functools.partial):
            return "partial", inner(value.func), inner(value.args), inner(value.keywords)
        if not inspect.isfunction(value):
            return None
        try:
            return _code(value)[0], self.of(value, depth + 1)
        except (SyntaxError, OSError):
            return None


def _import_root(file: Path, module: str) -> Path:
    """The folder from which a module's outermost package is imported; the same where the module is run as a program."""
    if module == "__main__":
        spec = sys.modules["__main__"].__spec__
        module = spec.name if spec is not None else file.stem
    depth = module.count(".") + (file.name == "__init__.py")
    return file.parents[depth] if depth < len(file.parents) else file.parent
