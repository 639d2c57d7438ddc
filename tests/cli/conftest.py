"""The console of a project, for the tests of its pages and of who may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.console_project import Console, console_of_project
from varve.catalog.catalog import Catalog
from varve.catalog.environments.environments import Environments
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varve.services.settings import Settings


@pytest.fixture
def console(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    with connect(settings, application="before a test") as connection:
        Catalog(connection).ensure_schema()
    with console_of_project(tmp_path, monkeypatch) as opened:
        yield opened
    with connect(settings, application="after a test") as connection:
        for environment in Environments(connection).all():
            Environments(connection).drop(environment.name)
