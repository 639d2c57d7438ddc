"""A project of two datasets with its console, and a browser that has the token."""

from __future__ import annotations

import html
import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.testclient import TestClient

from tests.support.dagster_home import make_dagster_home
from varve.catalog.catalog import Catalog
from varve.cli.observe.console.access import cookie_of
from varve.cli.observe.console.app import application
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project
from varve.model.batch import StagedBatch
from varve.project import Project
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pytest
    from starlette.applications import Starlette

    from varve.model.batch import BatchId, Input

SCRIPT = "<script>alert(1)</script>"
SALES = f"""CREATE DATASET {{db}}.sales (product STRING COMMENT '{SCRIPT}')
  COMMENT 'One row per sale. {SCRIPT}'
  OWNER '{{owner}}'
  STORED IN LAKE
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-10-30', END '2026-11-03'), store IN ('Paris', '{SCRIPT}"\\'&x')
  LET day = CAST(t AS DATE)
EXTERNAL;
"""
TOTALS = """CREATE DATASET {db}.totals
  COMMENT 'Of a day.'
  STORED IN WAREHOUSE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-10-30', END '2026-11-03')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
SELECT COUNT(*) AS sold FROM {db}.sales WHERE sales.day = today;
"""
TOKEN = "the-right-token-of-the-console"  # noqa: S105


@dataclass
class Console:
    """A project, its catalog, and a browser that has the token."""

    db: str
    project: Project
    browser: TestClient

    def publish(self, table: str, path: str, run: str, *inputs: Input, failure: str = "") -> BatchId:
        """Record a batch as a run would, or one that has failed."""
        return self.publish_all(table, [path], run, *inputs, failure=failure)

    def publish_all(self, table: str, paths: Sequence[str], run: str, *inputs: Input, failure: str = "") -> BatchId:
        """Record a batch of each partition as one run would, or those of one that has failed."""
        graph = load_project(self.project).graph
        dataset = graph.datasets[f"{self.db}.{table}"]
        keys = [dataset.partitioning.from_path(path) for path in paths]
        with connect(self.project.settings, application="varve test") as connection:
            catalog = Catalog(connection)
            catalog.ensure_schema()
            version = graph.code_versions.get(dataset.name, "")
            build = catalog.begin(dataset, keys, run_id=run, code_version=version)
            for key, each in product(keys, inputs):
                build.reads(key, each)
            if failure:
                catalog.fail(build, failure)
            else:
                catalog.staged(build, [StagedBatch(key, "/nowhere", 3, 2_048, 1) for key in keys])
                catalog.publish(build)
            catalog.release(build)
        return build.batch_id

    def page(self, address: str, status: int = 200) -> str:
        answer = self.browser.get(address)
        assert answer.status_code == status, answer.text
        return answer.text

    def commands(self, address: str) -> list[str]:
        """The commands to copy on a page, as a person copies them."""
        return [
            html.unescape(command)
            for command in re.findall(r"<pre><code>(.*?)</code></pre>", self.page(address), re.DOTALL)
        ]

    def reload(self) -> None:
        """Files of the project have changed: the next page reads them."""
        load_project.cache_clear()
        forget_files()

    def again(self, **options: bool) -> TestClient:
        """Another console of the same project, which has judged nothing yet."""
        return TestClient(self.app(), cookies={cookie_of(TOKEN): TOKEN}, **options)  # type: ignore[arg-type]

    def app(self) -> Starlette:
        return application(Project.find(self.project.root), TOKEN, hosts=["testserver"])


HOSTILE = "day=2026-11-01/store=" + quote(SCRIPT + "\"'&x", safe="")


@contextmanager
def console_of_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A project in a folder, whose datasets have names of their own in the catalog that tests share."""
    db = f"c{uuid.uuid4().hex[:8]}"
    assets = folder / f"{db}_assets"
    assets.mkdir()
    (assets / "__init__.py").write_text("")
    (folder / "varve.toml").write_text(f'assets = "{assets.name}"\n')
    make_dagster_home(folder)
    monkeypatch.setenv("VARVE_PROJECT", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    (assets / "sales.sql").write_text(SALES.format(db=db, owner="ann@example.com"))
    (assets / "totals.sql").write_text(TOTALS.format(db=db))
    load_project.cache_clear()
    forget_files()
    project = Project.find(folder)
    browser = TestClient(application(project, TOKEN, hosts=["testserver"]), cookies={cookie_of(TOKEN): TOKEN})
    yield Console(db, project, browser)
