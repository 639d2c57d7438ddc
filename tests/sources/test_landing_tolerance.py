"""Rejected rows of many files, by Spark's workers and by the run itself: the same rows, counted by partition."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sources.test_landing import FIRST, GOOD, HEADER, IN_WORKERS, SECOND, landing_dataset
from varve.dagster.runs.failures import explained
from varve.model.errors import BadInput
from varve.model.landing.options import Header, LandingOptions
from varve.model.landing.rejection import RejectInto
from varve.sources.landing.bad_rows import all_bad_rows
from varve.sources.landing.declared_file import source_of
from varve.sources.landing.landing import Landing
from varve.stores.open_build import OpenBuild

if TYPE_CHECKING:
    from tests.support.workbench import Workbench

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("bytes_for_spark", [IN_WORKERS, 1 << 20], ids=["by workers", "by this process"])
def test_rejected_rows_are_counted_by_partition_over_all_of_its_files(
    workbench: Workbench, tmp_path: Path, bytes_for_spark: int
) -> None:
    plain = landing_dataset()
    dataset = replace(
        plain,
        landing=LandingOptions(files="day={day}/*", header=Header.BY_NAME),
        reject_into=RejectInto(2, f"{plain.db}.sales_rejected"),
    )
    landing = Landing(str(tmp_path), bytes_for_spark=bytes_for_spark)
    folder = tmp_path / dataset.db / dataset.table
    (folder / "day=2013-01-05").mkdir(parents=True)
    (folder / "day=2013-01-06").mkdir()
    first, second = folder / "day=2013-01-05" / "a.csv", folder / "day=2013-01-06" / "a.csv"
    beside = folder / "day=2013-01-05" / "b.jsonl"
    first.write_text(HEADER + GOOD + GOOD.replace("3", "three", 1))
    beside.write_text(json.dumps({"product": "cap", "sold": 1}) + "\n{\n")
    second.write_text(HEADER.replace("\n", ",day\n") + GOOD.replace("\n", ",2013-01-05\n") + "pen,3\n")

    def run() -> tuple[list[str], list[tuple[object, ...]]]:
        catalog = workbench.catalog()
        opened = OpenBuild(workbench.begin(catalog, dataset, (FIRST, SECOND)), catalog)
        try:
            with explained(opened, workbench.settings):
                rows = landing.read(opened, workbench.spark).collect()
            assert opened.rejected_rows is not None
            names = ("day", "file", "line", "column_name", "value")
            return sorted(row["product"] for row in rows), [
                tuple(str(row[name]) if name == "day" else row[name] for name in names)
                for row in opened.rejected_rows.to_pylist()
            ]
        finally:
            # Of a connection that is only closed the server lets go when it gets to it, perhaps after the next run.
            catalog.release(opened.build)
            catalog.connection.close()

    taken, rejected = run()
    assert taken == ["cap", "pen"]
    assert rejected == [
        ("2013-01-05", str(first), 3, "sold", "three"),
        ("2013-01-05", str(beside), 2, None, None),
        ("2013-01-06", str(second), 2, "day", "2013-01-05"),
        ("2013-01-06", str(second), 3, None, None),
    ]
    # One row too many, in two files of one partition: none of both partitions.
    beside.write_text('{\n{"sold": "x"}\n')
    with pytest.raises(BadInput) as refused:
        run()
    assert str(refused.value).startswith(
        f"{first} ({dataset}): 3 rows of it and of 1 file beside it cannot be read as declared, more than the 2 that "
        f"go into {dataset.db}.sales_rejected: line 3: column sold: 'three' is not of type INT. Nothing was published"
    )
    assert str(refused.value).endswith(f"run varve backfill start {dataset}.")
    # What is wrong with a file as a whole is no row of it.
    beside.write_text('{"product": "cap"}\n{')
    with pytest.raises(BadInput, match="the file ends in the middle of a line: it is truncated"):
        run()


def test_a_partition_column_that_contradicts_the_name_of_its_file_is_refused_without_a_tolerance_too(
    workbench: Workbench, tmp_path: Path
) -> None:
    dataset = landing_dataset()
    for bytes_for_spark in (IN_WORKERS, 1 << 20):
        landing = Landing(str(tmp_path), bytes_for_spark=bytes_for_spark)
        (path := tmp_path / dataset.db / dataset.table / "2013-01-05.csv").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER.replace("\n", ",day\n") + GOOD.replace("\n", ",2013-01-06\n"))
        catalog = workbench.catalog()
        opened = OpenBuild(workbench.begin(catalog, dataset, (FIRST,)), catalog)
        with pytest.raises(BadInput) as refused, explained(opened, workbench.settings):
            landing.read(opened, workbench.spark).collect()
        catalog.connection.close()
        assert str(refused.value).startswith(
            f"{path} ({dataset}): line 2: column day: '2013-01-06' contradicts the file's name; it is a file of "
            "day = '2013-01-05'. Nothing was published"
        )


def test_the_partition_of_a_file_is_known_whatever_folders_the_landing_folder_lies_in(tmp_path: Path) -> None:
    dataset = landing_dataset()
    landing = Landing(str(tmp_path / dataset.db / dataset.table / "in"))
    path = Path(landing.uri(dataset, "2013-01-05"))
    path.parent.mkdir(parents=True)
    path.write_text(HEADER.replace("\n", ",day\n") + GOOD.replace("\n", ",2013-01-06\n"))
    error = all_bad_rows(dataset, source_of(dataset, str(path)))
    assert "line 2: column day: '2013-01-06' contradicts the file's name" in str(error)
    assert list(error.partitions) == ["day=2013-01-05"]
