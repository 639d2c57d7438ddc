# ruff: noqa: E501 - queries
"""Queries over datasets whose series has several partition columns, or one that is a number or a moment.

`b.dumps` has the layout of an hourly dump of Hive, with a column of shops between those of time; `b.logs` the same hours as
two texts; `b.local` the hours of Sydney around a day of 25 hours, counted since the day began; `b.ticks` the days as a
number, a moment and seconds since 1970.
"""

from __future__ import annotations

import random

import pendulum

from varve.model.partitions.dimension import StaticDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.partitions.time_columns import TimeColumn
from varve.model.schema import ColumnType
from varve.sql.partitions.axes import Upstream

INT, BIGINT, DATE, TIMESTAMP = ColumnType.INT, ColumnType.BIGINT, ColumnType.DATE, ColumnType.TIMESTAMP
_FIRST = pendulum.datetime(2022, 3, 28)
_SYDNEY = pendulum.datetime(2022, 4, 1, tz="Australia/Sydney")
_HOURS = TimeDimension(
    "t", Grain.HOUR, _FIRST, _FIRST.add(days=5),
    columns=(TimeColumn("year", "%Y", INT), TimeColumn("month", "%m", INT), TimeColumn("day", "%d", INT), TimeColumn("hour", "%H", INT)),
)  # fmt: skip
_TEXTS = TimeDimension(
    "t", Grain.HOUR, _FIRST, _FIRST.add(days=5), columns=(TimeColumn("day", "%Y-%m-%d"), TimeColumn("hour", "%H"))
)
_LOCAL = TimeDimension(
    "t", Grain.HOUR, _SYDNEY, _SYDNEY.add(days=4),
    columns=(TimeColumn("month", "%Y-%m"), TimeColumn("day", "%Y-%m-%d", DATE), TimeColumn("slot", "%E", INT)),
)  # fmt: skip
_DAYS = TimeDimension(
    "d", Grain.DAY, _FIRST.subtract(days=20), _FIRST.add(days=20),
    columns=(TimeColumn("date_id", "%Y%m%d", INT), TimeColumn("ts", "%s", TIMESTAMP), TimeColumn("epoch", "%s", BIGINT), TimeColumn("first", "%Y-%m-01", DATE)),
)  # fmt: skip
STORES = StaticDimension("store", ("Lyon", "Paris"))
UPSTREAMS = {
    "b.dumps": Upstream(
        "b.dumps",
        Partitioning((_HOURS, STORES), ("year", "month", "store", "day", "hour")),
        {"year": "int", "month": "int", "store": "string", "day": "int", "hour": "int"},
    ),
    "b.logs": Upstream("b.logs", Partitioning((_TEXTS,)), {"day": "string", "hour": "string"}),
    "b.local": Upstream("b.local", Partitioning((_LOCAL,)), {"month": "string", "day": "date", "slot": "int"}),
    "b.ticks": Upstream(
        "b.ticks", Partitioning((_DAYS,)), {"date_id": "int", "ts": "timestamp", "epoch": "bigint", "first": "date"}
    ),
}
SCHEMAS = {name: {"id": "int", "n": "int", **upstream.types} for name, upstream in UPSTREAMS.items()}

# Conditions over one of the datasets each, one a line or separated by ` | `.
_DUMPS = """
x.year = YEAR(t) AND x.month = MONTH(t) AND x.day = DAY(t) | x.year = YEAR(t) AND x.month = MONTH(t) AND x.day = DAY(t) AND x.hour = 7 | x.day = DAY(dd) AND x.hour < 2 | x.year = 2022 AND x.month = 4
x.year = YEAR(t) AND x.month = MONTH(t) AND x.day BETWEEN DAY(t) - 1 AND DAY(t) AND x.store = st | x.year * 10000 + x.month * 100 + x.day = CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT) | x.year * 100 + x.month = 202204
MAKE_DATE(x.year, x.month, x.day) = dd | MAKE_DATE(x.year, x.month, x.day) BETWEEN DATE_SUB(dd, 2) AND dd | MAKE_DATE(x.year, x.month, x.day) >= dd AND x.hour IN (0, 23) | CONCAT(x.year, '-', LPAD(x.month, 2, '0'), '-', LPAD(x.day, 2, '0')) = pd
TO_TIMESTAMP(CONCAT(x.year, '-', LPAD(x.month, 2, '0'), '-', LPAD(x.day, 2, '0'), ' ', LPAD(x.hour, 2, '0')), 'yyyy-MM-dd HH') >= t AND MAKE_DATE(x.year, x.month, x.day) <= dd | (x.year, x.month, x.day) IN ((2022, 3, 30), (2022, 4, 1)) | (x.year, x.month, x.day, x.store) IN ((2022, MONTH(t), DAY(t), st))
x.year > 2022 | x.year <= 2021 OR x.day = 30 | x.year = '2022' AND x.month = '04' | CAST(x.year AS STRING) = LEFT(pd, 4) AND x.month = 3 | x.year <> 2022 OR x.hour = 3 | NOT (x.year = YEAR(t) AND x.month = MONTH(t)) | x.month IN (3, 5) AND x.day > 29 AND x.n > 4 | x.year BETWEEN 2020 AND 2022 AND x.month <= MONTH(t)
x.month = MONTH(t) OR x.n = 3 | (x.month = 3 AND x.day = 31) OR (x.month = 4 AND x.day = 1) | x.year <=> 2022 AND x.day <=> DAY(t) | x.year + 1 = 2023 AND x.hour DIV 6 = 2 | x.hour % 6 = 0 AND x.day = DAY(t) | x.store = st AND x.hour = 12 | CASE WHEN x.hour < 6 THEN x.day = DAY(t) ELSE x.day = DAY(t) - 1 END | COALESCE(x.day, 0) = DAY(t) AND x.month = MONTH(t) | x.year = 2022.0 AND x.day = 30
""".strip()
_LOGS = """
x.day = pd | x.day = pd AND x.hour = '07' | x.day BETWEEN DATE_SUB(pd, 1) AND pd AND x.hour >= '22' | x.day = DATE_FORMAT(t, 'yyyy-MM-dd') AND CAST(x.hour AS INT) < 3 | CONCAT(x.day, ' ', x.hour) = CONCAT(pd, ' 12')
TO_TIMESTAMP(CONCAT(x.day, ' ', x.hour), 'yyyy-MM-dd HH') BETWEEN t AND t + INTERVAL 3 HOURS | CAST(CONCAT(x.day, ' ', x.hour, ':00:00') AS TIMESTAMP) >= t AND CAST(x.day AS DATE) < DATE_ADD(dd, 1) | x.day < pd AND x.hour = '23' OR x.day = pd AND x.hour = '00' | x.hour = '05' | x.day > '2022-03-31' AND x.hour IN ('01', '1') | x.day >= '2022-04' AND x.n < 5 | x.day <= '2022-03-3' | (x.day, x.hour) IN ((pd, '01'), ('2022-03-29', '02')) | x.day LIKE '2022-04%' AND x.hour LIKE '1%'
""".strip()
_LOCAL_CONDITIONS = """
x.day = dd | x.day = dd AND x.slot = 24 | x.day BETWEEN dd AND DATE_ADD(dd, 2) AND x.slot > 22 | x.day >= DATE_ADD(dd, 2) AND x.slot = 24 | x.month = '2022-04' AND x.slot = 24 | x.month <= '2022-04-02' | x.month = SUBSTR(pd, 1, 7) AND x.day <= '2022-04-03' | x.month >= '2022-04-02' OR x.slot = 1 | x.day = '2022-04-03' AND x.slot BETWEEN 1 AND 4 | x.month < '2022-04' | x.day <= t AND x.slot < 2
""".strip()
_TICKS = """
x.date_id = CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT) | x.date_id BETWEEN 20220328 AND CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT) | x.date_id > 20220399 | x.date_id < 20220400 AND x.date_id >= 20220331 | x.date_id >= 20221301 | x.date_id IN (20220330, 20220401, 5) | x.date_id <= 20220231 | x.date_id = 20220330.0 | x.date_id DIV 100 = 202204
x.ts = t | x.ts >= t AND x.ts < t + INTERVAL 2 DAYS | CAST(x.ts AS DATE) = dd | x.ts BETWEEN DATE_SUB(dd, 2) AND dd | x.ts <= '2022-03-30' | DATE_FORMAT(x.ts, 'yyyy-MM') = SUBSTR(pd, 1, 7) | x.epoch = UNIX_TIMESTAMP(t) | x.epoch >= UNIX_TIMESTAMP(t) - 86400 AND x.epoch <= UNIX_TIMESTAMP(t) | TIMESTAMP_SECONDS(x.epoch) = t | x.epoch < 0 | x.epoch > 9999999999999 | x.epoch % 172800 = 0 AND x.ts <= t
x.first = TRUNC(dd, 'MM') | x.first <= '2022-03-15' | x.first < dd AND x.first >= DATE_SUB(dd, 40) | x.first = dd | x.first > DATE_SUB(dd, 1) | x.first = DATE'2022-03-01' AND x.date_id > 20220328 | x.first BETWEEN '2022-03-02' AND dd OR x.ts = t
""".strip()
_FAMILIES = {"b.dumps": _DUMPS, "b.logs": _LOGS, "b.local": _LOCAL_CONDITIONS, "b.ticks": _TICKS}
# Joins, unions, subqueries and groups between them, and with datasets that have one column of time.
_ABOVE = """
SELECT x.n, y.n AS m FROM b.dumps x JOIN b.dumps y ON x.year = y.year AND x.month = y.month AND x.day = y.day AND x.hour = y.hour AND x.store = y.store WHERE x.year = YEAR(t) AND x.month = MONTH(t) AND x.day = DAY(t)
SELECT x.n, y.n AS m FROM b.dumps x JOIN b.dumps y ON y.year = x.year AND y.month = x.month AND y.day = x.day - 1 AND y.hour = x.hour WHERE MAKE_DATE(x.year, x.month, x.day) = dd AND x.hour < 3
SELECT x.n, y.n AS m FROM b.dumps x JOIN b.logs y ON MAKE_DATE(x.year, x.month, x.day) = y.day AND x.hour = CAST(y.hour AS INT) WHERE y.day = pd
SELECT x.n, y.n AS m FROM b.dumps x LEFT JOIN b.logs y ON y.day = pd AND LPAD(x.hour, 2, '0') = y.hour WHERE x.year = YEAR(t) AND x.month = MONTH(t) AND x.day = DAY(t)
SELECT x.n, y.n AS m FROM b.logs x FULL JOIN b.logs y ON x.day = y.day AND x.hour = y.hour WHERE x.day = pd AND y.hour = '03'
SELECT x.n FROM b.logs x LEFT SEMI JOIN b.dumps y ON y.day = DAY(x.day) AND y.month = MONTH(x.day) AND y.hour = 4 AND x.hour = '04' WHERE x.day <= pd
SELECT x.n FROM b.logs x WHERE x.day = pd AND EXISTS (SELECT 1 FROM b.dumps y WHERE y.year = YEAR(t) AND y.month = MONTH(t) AND y.day = DAY(t) AND y.hour = CAST(x.hour AS INT))
SELECT x.n FROM b.dumps x WHERE (x.year, x.month, x.day) IN (SELECT YEAR(CAST(y.day AS DATE)), MONTH(CAST(y.day AS DATE)), DAY(CAST(y.day AS DATE)) FROM b.logs y WHERE y.day = pd AND y.hour = '00') AND x.year = YEAR(t) AND x.month = MONTH(t)
SELECT day, hour, SUM(n) AS s FROM (SELECT MAKE_DATE(year, month, day) AS day, hour, n FROM b.dumps UNION ALL SELECT CAST(day AS DATE), CAST(hour AS INT), n FROM b.logs) WHERE day = dd AND hour BETWEEN 2 AND 5 GROUP BY day, hour
WITH a AS (SELECT year, month, day, hour, SUM(n) AS s FROM b.dumps GROUP BY year, month, day, hour) SELECT s FROM a WHERE year = YEAR(t) AND month = MONTH(t) AND day = DAY(t)
WITH a AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY year, month, day ORDER BY hour, store, id, n) AS r FROM b.dumps) SELECT n FROM a WHERE year = 2022 AND month = MONTH(t) AND day = DAY(t) AND r < 20
SELECT x.n, s.n AS m FROM b.sales s JOIN b.dumps x ON s.day = CAST(MAKE_DATE(x.year, x.month, x.day) AS STRING) AND s.store = x.store WHERE s.day = pd
SELECT x.n, c.cost FROM b.costs c JOIN b.local x ON c.day = x.day WHERE c.day BETWEEN dd AND DATE_ADD(dd, 3) AND x.slot = 24
SELECT x.n, h.v FROM b.ticks x JOIN b.hours h ON CAST(h.at AS DATE) = CAST(x.ts AS DATE) WHERE h.at >= t AND h.at < t + INTERVAL 1 DAY
SELECT x.n, y.n AS m FROM b.ticks x JOIN b.dumps y ON x.date_id = y.year * 10000 + y.month * 100 + y.day WHERE x.ts = t AND y.hour > 20
SELECT x.n FROM b.ticks x JOIN b.ticks y ON x.epoch = y.epoch - 86400 WHERE y.date_id = CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT)
SELECT n FROM b.dumps WHERE year = YEAR(t) AND month = MONTH(t) AND day = DAY(t) LIMIT 100000
SELECT x.n, y.n AS m FROM b.dumps x JOIN b.dumps y USING (year, month, day, hour) WHERE year = YEAR(t) AND month = MONTH(t) AND day = DAY(t) AND hour = 5
SELECT x.n, y.n AS m FROM b.logs x RIGHT JOIN b.logs y ON x.day = y.day AND x.hour = y.hour AND x.day = pd WHERE y.day BETWEEN DATE_SUB(pd, 1) AND pd
"""


def column_queries() -> list[str]:
    """All of them, each once."""
    conditions = [
        (dataset, condition.strip())
        for dataset, text in _FAMILIES.items()
        for line in text.splitlines()
        for condition in line.split(" | ")
    ]
    single = [f"SELECT x.n FROM {dataset} x WHERE {condition}" for dataset, condition in conditions]
    return list(dict.fromkeys([*single, *(line for line in _ABOVE.strip().splitlines())]))


_ATOMS = {
    "b.dumps": (
        "x.year {o} YEAR(t)", "x.month {o} MONTH(t)", "x.day {o} DAY(t) - {k}", "x.hour {o} {k}", "x.store = st", "x.n {o} {k}",
        "x.year IN (2021, 2022)", "MAKE_DATE(x.year, x.month, x.day) {o} DATE_SUB(dd, {k})", "x.month = 3", "x.hour % 4 = {k}",
    ),
    "b.logs": (
        "x.day {o} DATE_SUB(pd, {k})", "x.day {o} pd", "x.hour {o} '0{k}'", "CAST(x.hour AS INT) {o} {k}", "x.n {o} {k}",
        "x.day IN (pd, '2022-04-01')", "CAST(x.day AS DATE) {o} DATE_ADD(dd, {k})", "x.hour LIKE '{k}%'", "MONTH(x.day) = 3",
    ),
    "b.local": (
        "x.day {o} dd", "x.slot {o} {k}", "x.slot = 24", "x.month {o} SUBSTR(pd, 1, 7)", "x.day {o} DATE_ADD(dd, {k})", "x.month {o} pd",
        "x.n {o} {k}",
    ),
    "b.ticks": (
        "x.ts {o} t", "x.date_id {o} CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT) - {k}", "x.epoch {o} UNIX_TIMESTAMP(t) + {k} * 86400",
        "x.first {o} dd", "x.first {o} TRUNC(dd, 'MM')", "CAST(x.ts AS DATE) {o} DATE_SUB(dd, {k})", "x.n {o} {k}", "x.date_id {o} 202203{k}0",
    ),
}  # fmt: skip


def random_column_queries(count: int, seed: int) -> list[str]:
    """Queries with random conditions, of each dataset as many."""
    random_ = random.Random(seed)
    return [
        f"SELECT x.n FROM {dataset} x WHERE {_condition(random_, _ATOMS[dataset], 2)}"
        for place in range(count)
        for dataset in [[*_ATOMS][place % len(_ATOMS)]]
    ]


def _condition(random_: random.Random, atoms: tuple[str, ...], depth: int) -> str:
    if depth == 0 or random_.random() < 0.2:
        operator = random_.choice(("=", "=", "=", "<", "<=", ">", ">=", "<>", "<=>"))
        atom = random_.choice(atoms).format(o=operator, k=random_.randint(0, 4))
        return f"NOT {atom}" if random_.random() < 0.1 else atom
    left, right = _condition(random_, atoms, depth - 1), _condition(random_, atoms, depth - 1)
    return f"({left} {random_.choice(('AND', 'AND', 'AND', 'OR'))} {right})"
