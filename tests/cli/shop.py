"""A project of a shop in a folder of its own, whose commands are called in this process, on the suite's services."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner, Result

from varve.cli.app import app
from varve.dagster.assets.sql_folders import forget_files
from varve.dagster.discovery import load_project
from varve.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.model.batch import Batch

HEAD = """
CREATE DATASET {db}.{name} {columns}
  COMMENT 'For a test.'
  STORED IN {store}
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-08', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
{rest}
"""
SALES = "(id INT, product STRING, price DECIMAL(10, 2), sold_at TIMESTAMP)"
STRUCTURE = "id INT, product STRING, price DECIMAL(10,2), sold_at TIMESTAMP, day DATE"
MORNING = dt.datetime(2026, 11, 1, 9, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Shop:
    """The project, with a database name that no other test has."""

    root: Path
    assets: Path
    db: str
    workbench: Workbench

    @classmethod
    def at(cls, root: Path, workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Shop:
        db = f"s{uuid.uuid4().hex[:8]}"
        assets = root / f"{db}_assets"
        assets.mkdir()
        (assets / "__init__.py").write_text("")
        (root / "varve.toml").write_text(f'assets = "{assets.name}"\n')
        monkeypatch.setenv("VARVE_PROJECT", str(root))
        monkeypatch.syspath_prepend(str(root))
        shop = cls(root, assets, db, workbench)
        shop.sql("sales", "EXTERNAL;", columns=SALES)
        return shop

    def sql(self, name: str, rest: str, *, columns: str = "", store: str = "LAKE") -> None:
        rest = rest.replace("shop.", f"{self.db}.")
        text = HEAD.format(db=self.db, name=name, columns=columns, store=store, rest=rest)
        (self.assets / f"{name}.sql").write_text(text.lstrip(), encoding="utf-8")

    def run(self, *words: str, answers: str | None = None) -> Result:
        """`varve ...`, with the database's name in the place of `shop`; `answers` are what a person types."""
        return CliRunner().invoke(app, [word.replace("shop.", f"{self.db}.") for word in words], input=answers)

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return json.loads(done.output)

    def asset(self, name: str) -> DatasetAsset:
        load_project.cache_clear()
        forget_files()
        (found,) = [each for each in load_project(Project.find(self.root)).datasets if each.dataset.table == name]  # type: ignore[union-attr]
        return found  # type: ignore[return-value]

    def sell(self, day: str, rows: Sequence[tuple[int, str, str | None]], *, of: str = "sales") -> Batch:
        """Publish the sales of a day, as a run would: (id, product, price)."""
        dataset = self.asset(of).dataset
        date = dt.date.fromisoformat(day)
        values = [
            (number, product, None if price is None else Decimal(price), MORNING, date)
            for number, product, price in rows
        ]
        frame = self.workbench.spark.createDataFrame(values, STRUCTURE)
        key = dataset.partitioning.key([date])
        return self.workbench.publish_frame(dataset, [key], frame)[key.path]
