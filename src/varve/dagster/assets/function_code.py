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
    return version_of([*dataset_meaning(dataset), code, _enclosed(compute, 0)]), shown


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


def _enclosed(compute: Callable[..., Any], depth: int) -> dict[str, Any]:
    """What a function, and each function around it that a decorator has put there, has enclosed, by name."""
    values: dict[str, Any] = {}
    while True:
        wrapped = getattr(compute, "__wrapped__", None)
        closed_over = inspect.getclosurevars(compute).nonlocals if inspect.isfunction(compute) else {}
        values |= {name: value for name, value in closed_over.items() if value is not wrapped}
        if wrapped is None:
            return {name: _told(value, depth + 1) for name, value in sorted(values.items())}
        compute = wrapped


def _told(value: Any, depth: int) -> Any:
    """What a value is, as something with the same text in each process."""
    if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, Dataset):
        return value.name
    told = functools.partial(_told, depth=depth + 1)
    for parts_of in (_of_collection, functools.partial(_of_object, depth=depth)) if depth < _DEEPEST else ():
        if (parts := parts_of(value, told)) is not None:
            return parts
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _of_collection(value: Any, told: Callable[[Any], Any]) -> Any:
    """The values of a collection; None for what is none."""
    if isinstance(value, Mapping):
        return {"of": sorted((repr(told(key)), repr(told(each))) for key, each in value.items())}
    if isinstance(value, AbstractSet):
        return {"all": sorted(repr(told(each)) for each in value)}
    if isinstance(value, list):
        return [told(each) for each in value]
    if isinstance(value, tuple):
        parts = tuple(told(each) for each in value)
        return value if all(part is each for part, each in zip(parts, value, strict=True)) else parts
    return None


def _of_object(value: Any, told: Callable[[Any], Any], depth: int) -> Any:
    """What a dataclass holds, or the code of a function; None for any other object."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: told(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return type(value).__qualname__, fields
    if isinstance(value, functools.partial):
        return "partial", told(value.func), told(value.args), told(value.keywords)
    if not inspect.isfunction(value):
        return None
    try:
        return _code(value)[0], _enclosed(value, depth + 1)
    except (SyntaxError, OSError):
        return None


def _import_root(file: Path, module: str) -> Path:
    """The folder from which a module's outermost package is imported; the same where the module is run as a program."""
    if module == "__main__":
        spec = sys.modules["__main__"].__spec__
        module = spec.name if spec is not None else file.stem
    depth = module.count(".") + (file.name == "__init__.py")
    return file.parents[depth] if depth < len(file.parents) else file.parent
