"""`varve.open(project)`: datasets by name, as they are and as they were; and names that the project does not have."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING

import pytest

import varve
from varve.dagster.discovery import load_project
from varve.model.broken_dataset import DatasetIsBroken
from varve.project import NoProject

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark

SALES = """\
CREATE DATASET {db}.sales (
  product STRING COMMENT 'what was sold',
  sold BIGINT COMMENT 'pieces',
  price DOUBLE COMMENT 'euros',
  at TIMESTAMP COMMENT 'when'
)
  COMMENT 'One row per product sold.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2013-01-01', END '2014-01-01'), shop IN ('Paris', 'Rome')
  LET today = CAST(t AS DATE)
  INSERT (day = today, store = shop)
EXTERNAL;
"""


@pytest.fixture
def project(tmp_path: Path) -> varve.Project:
    """One dataset that can be read, and one whose file is wrong; their database is no other test's."""
    db = f"t{uuid.uuid4().hex[:8]}"
    (tmp_path / "varve.toml").touch()
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "sales.sql").write_text(SALES.format(db=db))
    (tmp_path / "assets" / "wrong.sql").write_text(
        SALES.format(db=db).replace("sales", "wrong").replace("CAST(t AS", "CAST(x AS")
    )
    return varve.Project.find(tmp_path)


def test_a_dataset_is_read_by_its_name_now_and_as_it_was(workbench: Workbench, project: varve.Project) -> None:
    (sales,) = load_project(project).graph.datasets.values()
    paris, rome = (varve.PartitionKey.of(day=dt.date(2013, 1, 5), store=store) for store in ("Paris", "Rome"))
    first = workbench.publish(sales, [paris, rome], [(paris, "pen", 1), (rome, "ink", 2)])[paris.path]
    second = workbench.publish(sales, [paris], [(paris, "pen", 10)])[paris.path]

    def sold(**how: object) -> list[int]:
        return sorted(row["sold"] for row in data.table(sales.name, **how).collect())  # type: ignore[arg-type]

    with varve.open(project.root) as data:
        assert data.datasets == [sales.name]
        assert sold() == [2, 10]
        assert sold(as_of=first.published_at) == [1, 2]
        assert sold(as_of=first.batch_id.millis) == [1, 2]
        assert sold(as_of=second.batch_id) == [10]
        assert sold(run=first.run_id) == [1, 2]
        assert sold(where={"store": "Rome"}) == [2]
        frame = data.table(sales.name, columns=["sold"], with_batch_id=True)
        assert frame.columns == ["sold", "day", "store", "_batch_id"]
        # Frames of one project can be joined.
        assert frame.join(data.table(sales.name, columns=["price"]), ["day", "store"]).count() == 2
        before = data.table(sales.name)
        workbench.publish(sales, [rome], [(rome, "ink", 20)])
        assert sorted(row["sold"] for row in before.collect()) == [2, 10]
        assert sold() == [10, 20]
    # Closed, and opened again by the next table.
    assert sold() == [10, 20]
    data.close()


def test_a_project_that_is_opened_again_is_read_as_its_files_are_by_then(
    workbench: Workbench, project: varve.Project
) -> None:
    (sales,) = load_project(project).graph.datasets.values()
    paris = varve.PartitionKey.of(day=dt.date(2013, 1, 5), store="Paris")
    workbench.publish(sales, [paris], [(paris, "pen", 1)])
    file = project.assets / "sales.sql"
    with varve.open(project.root) as data:
        assert data.table(sales.name).columns == ["product", "sold", "price", "at", "day", "store"]
        file.write_text(file.read_text().replace("  at TIMESTAMP", "  colour STRING COMMENT 'which',\n  at TIMESTAMP"))
        # What is open is as it was opened.
        assert "colour" not in data.table(sales.name).columns
        (project.assets / "other.sql").write_text(SALES.format(db=sales.db).replace("sales", "other"))
    for again in (data, varve.open(project.root)):
        with again:
            assert again.table(sales.name).columns == ["product", "sold", "price", "colour", "at", "day", "store"]
            assert set(again.datasets) == {sales.name, f"{sales.db}.other"}
    assert load_project(project) is load_project(project)


def test_a_name_that_it_does_not_have_is_told_with_the_nearest(project: varve.Project) -> None:
    (name,) = load_project(project).graph.datasets
    data = varve.open(project)
    with pytest.raises(varve.VarveError, match=rf"varve\.toml has no dataset '{name}s'\. Did you mean {name}\? It has"):
        data.table(f"{name}s")
    with pytest.raises(DatasetIsBroken, match=r"wrong is broken.*\nassets/wrong\.sql:\d+"):
        data.table(name.replace("sales", "wrong"))


def test_without_a_project_nothing_is_opened(tmp_path: Path) -> None:
    with pytest.raises(NoProject, match=r"neither .* has a varve\.toml"):
        varve.open(tmp_path)
