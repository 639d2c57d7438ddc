"""Unions whose branches have constants: which partitions each branch reads, and what else is read because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.sql.sql_project import compiled
from varve.sql.syntax.errors import SourceFile

if TYPE_CHECKING:
    from varve.sql.sql_asset import SqlAsset

DAYS = "t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-03')"
OF_DAYS = f"PARTITIONED BY (day STRING) FOR {DAYS} LET day = DATE_FORMAT(t, 'yyyy-MM-dd') EXTERNAL"
OF_BOTH = OF_DAYS.replace("(day STRING)", "(day STRING, region STRING)").replace(
    " LET", ", region IN ('EU', 'US', 'APAC') LET"
)
OUT = f"""PARTITIONED BY (day STRING, region STRING)
FOR {DAYS}, region IN ('EU', 'US')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
AS """
WITH_RATES = "SELECT n, 'EU' AS place, day FROM shop.eu UNION ALL SELECT n, rates.region, day FROM shop.rates"
BOTH = "SELECT n, 'EU' AS place, day FROM shop.eu UNION ALL SELECT n, 'US', day FROM shop.us"


def asset(query: str) -> SqlAsset:
    texts = [f"CREATE DATASET shop.{name} (n INT) {OF_DAYS}" for name in ("eu", "us")]
    texts += [f"CREATE DATASET shop.rates (n INT) {OF_BOTH}", f"CREATE DATASET shop.out {OUT} {query}"]
    sources = [SourceFile(f"{place}.sql", text) for place, text in enumerate(texts)]
    return compiled(sources, {})["shop.out"]


def read_by(query: str, region: str) -> set[str]:
    """What the partition of a region reads on the first day, without that day."""
    out = asset(query)
    key = out.dataset.partitioning.from_path(f"day=2022-03-01/region={region}")
    keys = {name: out.dependency(name).upstream_of(key).keys for name in out.reads}
    assert all(key.path.startswith("day=2022-03-01") for read in keys.values() for key in read)
    return {f"{name[5:]}{key.path[14:]}" for name, read in keys.items() for key in read}


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT n FROM ({BOTH}) x WHERE place = :region AND day = today",
        f"SELECT SUM(n) AS n FROM ({BOTH}) x WHERE day = today GROUP BY place HAVING place = :region",
        (
            f"WITH x AS ({BOTH}), y AS (SELECT MAX(n) AS n, place, day FROM x GROUP BY ALL) "
            "SELECT n FROM y WHERE place = :region AND day = today"
        ),
        (
            "SELECT n FROM (SELECT 'EU' AS place, * FROM shop.eu UNION SELECT 'US', * FROM shop.us) x "
            "WHERE LOWER(place) = LOWER(:region) AND day = today"
        ),
        (
            "SELECT n FROM shop.eu WHERE eu.day = today AND 'EU' = :region "
            "UNION ALL SELECT n FROM shop.us WHERE us.day = today AND 'US' = :region"
        ),
    ],
)
def test_one_corrected_region_rebuilds_one_partition(query: str) -> None:
    assert (read_by(query, "EU"), read_by(query, "US")) == ({"eu"}, {"us"})
    out = asset(query)
    for name, region in (("shop.eu", "EU"), ("shop.us", "US")):
        (corrected, _) = out.upstreams[name].partitioning.keys()
        readers = [key.path for key in out.dependency(name).readers_of(corrected).keys]
        assert readers == [f"day=2022-03-01/region={region}"]


@pytest.mark.parametrize(
    ("query", "eu", "us"),
    [
        # A literal where the other branch has the partition column.
        (f"SELECT n FROM ({WITH_RATES}) x WHERE place = :region AND day = today",
         {"eu", "rates/region=EU"}, {"rates/region=US"}),
        # Regions as a list of constants, and as one with a second column that decides.
        (("SELECT r.n FROM shop.rates r JOIN (SELECT 'EU' AS place UNION ALL SELECT 'US') c ON r.region = c.place "
         "WHERE r.day = today"), {"rates/region=EU", "rates/region=US"}, {"rates/region=EU", "rates/region=US"}),
        (("SELECT r.n FROM shop.rates r JOIN (SELECT 'APAC' AS place, 'EU' AS part UNION ALL SELECT 'US', 'US') c "
         "ON r.region = c.place WHERE r.day = today AND c.part = :region"), {"rates/region=APAC"}, {"rates/region=US"}),
        # The same as VALUES, with names, without, in a CTE; one row alone; a value of the scope; and rows of two types.
        (("SELECT r.n FROM shop.rates r JOIN (VALUES ('EU'), ('US')) AS c(place) ON r.region = c.place "
         "WHERE r.day = today"), {"rates/region=EU", "rates/region=US"}, {"rates/region=EU", "rates/region=US"}),
        (("SELECT r.n FROM shop.rates r JOIN (VALUES ('APAC', 'EU'), ('US', 'US')) c ON r.region = c.col1 "
         "WHERE r.day = today AND c.col2 = :region"), {"rates/region=APAC"}, {"rates/region=US"}),
        (("WITH c(place) AS (VALUES ('APAC'), ('APAC')) SELECT r.n FROM shop.rates r JOIN c ON r.region = c.place "
         "WHERE r.day = today"), *[{"rates/region=APAC"}] * 2),
        (("SELECT r.n FROM shop.rates r JOIN VALUES ('APAC') AS c(place) ON r.region = c.place WHERE r.day = today"),
         *[{"rates/region=APAC"}] * 2),
        (("SELECT r.n FROM shop.rates r JOIN VALUES (:region), ('APAC') AS c(place) ON r.region = c.place "
         "WHERE r.day = today"), {"rates/region=EU", "rates/region=APAC"}, {"rates/region=US", "rates/region=APAC"}),
        (("SELECT r.n FROM shop.rates r JOIN (VALUES ('EU'), (DATE'2022-03-01')) AS c(place) ON r.region = c.place "
         "WHERE r.day = today"), *[{"rates/region=EU", "rates/region=US", "rates/region=APAC"}] * 2),
        # The rates of the regions that the branches have.
        ((f"SELECT r.n FROM shop.rates r JOIN ({BOTH}) x ON r.region = x.place AND r.day = x.day "
         "WHERE x.day = today AND x.place = :region"), {"eu", "rates/region=EU"}, {"us", "rates/region=US"}),
        # Rows of the left side stay without a partner: all are read.
        (("SELECT r.n FROM shop.rates r LEFT JOIN (SELECT 'EU' AS place UNION ALL SELECT 'US') c ON r.region = c.place "
         "WHERE r.day = today"), *[{"rates/region=EU", "rates/region=US", "rates/region=APAC"}] * 2),
        # Two columns of a branch may have one name: a union goes by places.
        (("SELECT n FROM (SELECT 'none' AS a, 'none' AS b, 0 AS n UNION ALL "
         "SELECT rates.region AS k, rates.day AS k, n FROM shop.rates WHERE rates.day = today) x WHERE a = :region"),
         {"rates/region=EU"}, {"rates/region=US"}),
    ],
)  # fmt: skip
def test_constants_of_branches_say_what_else_is_read(query: str, eu: set[str], us: set[str]) -> None:
    assert (read_by(query, "EU"), read_by(query, "US")) == (eu, us)
