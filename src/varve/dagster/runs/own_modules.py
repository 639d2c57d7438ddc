"""The project's modules in what Spark's workers get: functions are pickled with what they use of them, by value.

Workers have no checkout of the project. To send them its files would not do: most of them import Varve, which workers
do not have either. So a function takes along what it uses of its module, and no more.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


def pickle_by_value(root: Path) -> list[ModuleType]:
    """From now on, functions of the modules that are imported from the project go to Spark by value.

    Returns the modules that were added; `root` is the project's folder. With Spark Connect a function is pickled when
    its rows are computed, which may be long after the code that named it has returned.
    """
    from pyspark import cloudpickle

    pickling: Any = cloudpickle
    prefix = f"{root.resolve()}{os.sep}"
    known = pickling.list_registry_pickle_by_value()
    # Other threads import meanwhile: a copy is made in one step, a list of the items is not.
    imported = sys.modules.copy()
    added = [module for name, module in imported.items() if name not in known and _is_own(name, module, prefix)]
    for module in added:
        pickling.register_pickle_by_value(module)
    return added


@contextmanager
def pickled_by_value(root: Path) -> Iterator[None]:
    """The same for functions that are pickled within the block."""
    from pyspark import cloudpickle

    pickling: Any = cloudpickle
    added = pickle_by_value(root)
    try:
        yield
    finally:
        for module in added:
            pickling.unregister_pickle_by_value(module)


def _is_own(name: str, module: object, prefix: str) -> bool:
    """Whether a module is a file of the project, whose files begin with the prefix.

    A virtual environment in its folder is none of it.
    """
    file = getattr(module, "__file__", None)
    # Thousands of modules are looked at in every run.
    if not isinstance(file, str) or not file.startswith(prefix) or getattr(module, "__name__", None) != name:
        return False
    return name.partition(".")[0] != "varve" and "site-packages" not in Path(file).parts
