"""A change of the engine itself, in whichever folder, makes everything that was understood before count no more."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import varve
from varve.sql import cache

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = Path(varve.__file__).parent
MODULES = sorted(path for room in ("model", "planning", "sql") for path in (LIBRARY / room).rglob("*.py"))
DEEPEST = max(MODULES, key=lambda path: len(path.parts))


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    cache._versions.cache_clear()
    yield
    cache._versions.cache_clear()


@pytest.mark.parametrize("changed", [MODULES[0], DEEPEST, LIBRARY / "sql" / "cache.py"], ids=lambda path: path.stem)
def test_a_module_that_was_written_again_is_another_version(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stat = cache._versions(), os.stat

    def written_again(path: Any, **how: Any) -> Any:
        found = stat(path, **how)
        if str(path) != str(changed):
            return found
        return SimpleNamespace(st_size=found.st_size, st_mtime_ns=found.st_mtime_ns + 1)

    monkeypatch.setattr(os, "stat", written_again)
    cache._versions.cache_clear()
    assert cache._versions() != before


def test_the_engine_has_modules_in_folders_of_folders() -> None:
    assert len(DEEPEST.relative_to(LIBRARY).parts) >= 3
