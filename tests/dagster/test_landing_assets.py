"""Landing files under the sensor: names and options as the header declares them, with any number of dimensions."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dagster.test_external_assets import tick
from tests.dagster.test_sql_assets import materialise, rows
from tests.support.project import PROJECT
from varve.catalog.rejected import RejectedArrivals
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.automation.sensors import arrival_sensor
from varve.model.landing.options import Header, LandingFormat, LandingOptions
from varve.services.postgres import connect
from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile, SqlErrors

if TYPE_CHECKING:
    from tests.support.workbench import Workbench
    from varve.dagster.assets.datasets import DatasetAsset
    from varve.services.settings import Settings

HEAD = """CREATE DATASET {db}.orders (product STRING, price DECIMAL(10,2))
PARTITIONED BY (day DATE, region STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-09-01', END '2026-09-05'), region IN ('EU', 'US')
LET day = CAST(t AS DATE)
EXTERNAL OPTIONS ({options});
"""
FAILED = "select distinct partition from varve.batch where dataset = %s and state = 'failed' order by partition"
REASONS = "select partition, failure from varve.batch where dataset = %s and state = 'failed'"
NAMES = {
    "source = 'landing'": "{day}|{region}.csv",
    "files = '{region}/orders_{day:%Y%m%d}.csv'": "{region}/orders_{short}.csv",
    "files = 'day={day}/region={region}/*.csv'": "day={day}/region={region}/part-1.csv",
    "files = '{day:%Y}/{day:%m}/{day:%d}_{region}', format = 'csv'": "2026/09/{last}_{region}.csv",
}


def orders(db: str, options: str) -> list[DatasetAsset]:
    return sql_assets(compiled([SourceFile("orders.sql", HEAD.format(db=db, options=options))], {}))


@pytest.mark.spark
@pytest.mark.parametrize("options", NAMES)
def test_files_of_two_dimensions_run_their_partitions(options: str, settings: Settings, workbench: Workbench) -> None:
    db = f"l{uuid.uuid4().hex[:8]}"
    folder = Path(settings.landing) / db / "orders"
    for day, region in (("2026-09-01", "EU"), ("2026-09-01", "US")):
        spelt = {"day": day, "short": day.replace("-", ""), "last": day[-2:], "region": region}
        path = folder / NAMES[options].format(**spelt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'product,price\n"{region} ""1""\n2",1.50\n')
    stray = folder / "readme.txt"
    stray.write_text("not an order")
    assets = orders(db, options)
    sensor = arrival_sensor(graph_of(assets), PROJECT)
    asked = {(key.replace("|", ""), end.replace("|", "")) for _, key, end in tick(sensor)}
    assert asked <= {("2026-09-01EU", "2026-09-01US"), ("2026-09-01EU",) * 2, ("2026-09-01US",) * 2}
    assert {region for key in asked for part in key for region in (part[-2:],)} == {"EU", "US"}
    with connect(settings) as connection:
        assert list(RejectedArrivals(connection).of(f"{db}.orders")) == [str(stray)]
    assert materialise(assets, f"{db}.orders", "2026-09-01|EU", "2026-09-01|US").success
    assert [(row[0], str(row[1]), row[-1]) for row in rows(workbench, assets, f"{db}.orders")] == [
        ('EU "1"\n2', "1.50", "EU"), ('US "1"\n2', "1.50", "US"),
    ]  # fmt: skip
    assert tick(sensor) == {}


@pytest.mark.spark
def test_one_bad_file_keeps_no_other_partition_of_its_run_waiting(settings: Settings, workbench: Workbench) -> None:
    db = f"l{uuid.uuid4().hex[:8]}"
    folder = Path(settings.landing) / db / "orders"
    folder.mkdir(parents=True)
    for key, price in {"01|EU": "1.50", "01|US": "1.555", "02|EU": "2.50"}.items():
        (folder / f"2026-09-{key}.csv").write_text(f"product,price\na,{price}\n")
    assets = orders(db, "source = 'landing'")
    sensor = arrival_sensor(graph_of(assets), PROJECT)
    assert ("orders", "2026-09-01|EU", "2026-09-01|US") in tick(sensor)
    for last, failed in (("2026-09-01|US", ["01/region=US"]), ("2026-09-02|US", ["01/region=US", "02/region=US"])):
        assert not materialise(assets, f"{db}.orders", "2026-09-01|EU", last).success
        with connect(settings) as connection:
            paths = [path for (path,) in connection.execute(FAILED, (f"{db}.orders",))]
        assert paths == [f"day=2026-09-{path}" for path in failed]
    # The bad one is tried again later; the others have never failed, and are asked for at once.
    assert set(tick(sensor)) == {("orders", "2026-09-01|EU", "2026-09-02|EU")}
    assert materialise(assets, f"{db}.orders", "2026-09-01|EU", "2026-09-02|EU").success
    assert len(rows(workbench, assets, f"{db}.orders")) == 2


@pytest.mark.spark
def test_each_bad_file_of_a_run_is_the_reason_of_its_own_partition(settings: Settings) -> None:
    db = f"l{uuid.uuid4().hex[:8]}"
    folder = Path(settings.landing) / db / "orders"
    folder.mkdir(parents=True)
    prices = {"01|EU": "1.555", "01|US": "x", "02|EU": "1", "02|US": "2"}
    for key, price in prices.items():
        (folder / f"2026-09-{key}.csv").write_text(f"product,price\na,{price}\n")
    assets = orders(db, "source = 'landing'")
    assert not materialise(assets, f"{db}.orders", "2026-09-01|EU", "2026-09-02|US").success
    with connect(settings) as connection:
        failures = dict(connection.execute(REASONS, (f"{db}.orders",)).fetchall())
    assert set(failures) == {"day=2026-09-01/region=EU", "day=2026-09-01/region=US"}
    assert "01|EU.csv" in failures["day=2026-09-01/region=EU"]
    assert "1.555" in failures["day=2026-09-01/region=EU"]
    assert "01|US.csv" in failures["day=2026-09-01/region=US"]
    assert "'x'" in failures["day=2026-09-01/region=US"]
    assert not any("other file" in failure for failure in failures.values())


def test_options_of_a_header_are_those_of_python() -> None:
    (asset,) = orders("l", "separator = 'tab', header = 'by name', null = 'NA,-', format = 'csv', encoding = 'latin-1'")
    assert asset.dataset.landing == LandingOptions(
        separator="\t", header=Header.BY_NAME, null=("NA", "-"), format=LandingFormat.CSV, encoding="latin-1"
    )
    (german,) = orders("l", "thousands = '.', decimal = ',', null = ''")
    assert german.dataset.landing == LandingOptions(decimal=",", thousands=".", null=())
    (plain,) = orders("l", "source = 'landing'")
    assert plain.dataset.landing is True


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ("seperator = ';'", "EXTERNAL has no option seperator"),
        ("seperator = ';'", "Did you mean separator?"),
        ("separator = '\"'", "cannot stand between fields"),
        ("header = 'byname'", "it is one of 'in order', 'by name', 'none'. Did you mean by name?"),
        ("format = 'json'", "Did you mean jsonl?"),
        ("encoding = 'lattin-1'", "Did you mean latin-1?"),
        ("decimal = ',', thousands = ','", "no number could be read"),
        ("date_format = 'dd.MM.yyyy'", "write it as strftime does"),
        ("timezone = 'Paris'", "is no IANA time zone"),
        ("format = 'avro', quote = 'none'", "format 'avro' has no option quote"),
        ("files = '{dya}_{region}.csv'", "Did you mean day?"),
        ("files = '{day}.csv'", "says nothing of region"),
        ("files = '{day}{region}.csv'", "nothing stands between"),
        ("files = '{day:%Y%m}_{region}.csv'", "does not tell the windows of day apart"),
        ("files = '{day}_{region:%Y}.csv'", "only a time dimension has a format"),
        ("files = '../{day}_{region}.csv'", "every part between / needs a name"),
        ("source = 'table', table = 'a.b', separator = ';'", "source 'table' has no option separator"),
    ],
)
def test_options_that_cannot_be_are_refused_with_their_place(options: str, expected_message: str) -> None:
    with pytest.raises(SqlErrors) as caught:
        orders("shop", options)
    assert expected_message in str(caught.value)
    assert str(caught.value).startswith("orders.sql:5:")
