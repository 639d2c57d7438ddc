# ruff: noqa: E501 - predicates, one a line
"""More than 500 conditions on partition columns: families over three datasets, those above joins and pivots, random ones.

The datasets and variables are those of constructs.py: days as text (`s`), as dates (`c`) and moments (`h`).
"""

from __future__ import annotations

import random
from itertools import product

from tests.sql.constructs import COSTS, HOURS, SALES, SINGLE, _predicate

_OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
# Families over one day column {d} of any type and one text column {k}; `{v}` is the variable of the column's type.
FAMILIES = """
{d} = NEXT_DAY(DATE_SUB({v}, 7), 'MO') | {d} >= NEXT_DAY(DATE_SUB({v}, 8), 'sunday') | NEXT_DAY({d}, 'FR') = NEXT_DAY({v}, 'FR') | {d} < NEXT_DAY({v}, 'Tue') AND {k} = st
MONTHS_BETWEEN({v}, {d}) = 0 | MONTHS_BETWEEN({d}, {v}) < 0 | MONTHS_BETWEEN({v}, {d}) BETWEEN 0 AND 1 | NOT MONTHS_BETWEEN({d}, {v}) >= 0
UNIX_DATE(CAST({d} AS DATE)) = UNIX_DATE(dd) | UNIX_DATE(CAST({d} AS DATE)) - UNIX_DATE(dd) BETWEEN -1 AND 1 | UNIX_DATE(CAST({d} AS DATE)) % 7 = 3 | CAST({d} AS DATE) = DATE_FROM_UNIX_DATE(UNIX_DATE(dd) - 2)
FROM_UNIXTIME(UNIX_DATE(CAST({d} AS DATE)) * 86400, 'yyyy-MM') = SUBSTR(pd, 1, 7) | FROM_UNIXTIME(UNIX_DATE(CAST({d} AS DATE)) * 86400) <= CAST(t AS STRING) | FROM_UNIXTIME(UNIX_TIMESTAMP(t), 'yyyy-MM-dd') = CAST(CAST({d} AS DATE) AS STRING)
CAST({d} AS STRING) RLIKE '-0[1-4]' | CAST({d} AS STRING) RLIKE '^2022-03' | CAST({d} AS STRING) NOT RLIKE '(28|30)' | {k} RLIKE '^[A-M]' AND {d} <= {v} | {k} RLIKE 'r.s$' | NOT ({k} RLIKE 'o' OR {d} > {v}) | REGEXP_LIKE({k}, 't|y') | CAST({d} AS STRING) RLIKE CONCAT('^', SUBSTR(pd, 1, 7))
CAST({d} AS STRING) LIKE '2022-04/_%' ESCAPE '/' OR {d} = {v} | CAST({d} AS STRING) LIKE '2022-0_-3%' | {k} LIKE 'P_r%' ESCAPE '!' | {k} NOT LIKE '%!_%' ESCAPE '!' AND {d} = {v} | {k} LIKE CONCAT(LEFT(st, 2), '%') | {k} LIKE '%y%' OR {d} = {v}
ARRAY_CONTAINS(ARRAY('Paris', st), {k}) AND {d} = {v} | ARRAY_CONTAINS(ARRAY('2022-03-28', pd), CAST(CAST({d} AS DATE) AS STRING)) | NOT ARRAY_CONTAINS(ARRAY('Paris', 'eu'), {k}) | ARRAY_CONTAINS(SPLIT('Paris,eu,Oslo', ','), {k}) AND {d} >= {v} | ARRAY_CONTAINS(ARRAY(1, 7), DAYOFWEEK({d}))
SPLIT(CAST({d} AS STRING), '-')[1] = SPLIT(pd, '-')[1] | CAST(SPLIT(CAST(CAST({d} AS DATE) AS STRING), '-')[2] AS INT) >= 28 | ELEMENT_AT(SPLIT({k}, 'a'), 1) = 'P' | SIZE(SPLIT({k}, 'r')) = 2 AND {d} < {v} | SPLIT_PART(CAST({d} AS STRING), '-', 2) = '04' | SUBSTRING_INDEX(CAST({d} AS STRING), '-', 2) = SUBSTR(pd, 1, 7) | INSTR({k}, 'ri') > 0 | LOCATE('o', {k}) = 0 AND {d} = {v} | REGEXP_REPLACE(CAST(CAST({d} AS DATE) AS STRING), '-', '') = DATE_FORMAT(t, 'yyyyMMdd')
(CAST(CAST({d} AS DATE) AS STRING), {k}) IN ((pd, st), ('2022-03-28', 'Paris'), ('2022-03-29', 'eu')) | (CAST({d} AS DATE), {k}) IN ((dd, 'Paris'), (DATE_SUB(dd, 2), st)) | (CAST({d} AS DATE), {k}) NOT IN ((dd, st), (dd, 'eu')) | ({k}, DAYOFWEEK({d})) IN (('Paris', 3), ('eu', 4), (st, 2)) | NOT (CAST({d} AS DATE), {k}) IN ((dd, st))
{d} = {v} AND FALSE | FALSE | 1 = 0 AND {k} = st | {d} <= {v} AND st = 'nowhere' | {d} <= {v} AND st = 'Paris' | pd < '2000-01-01' OR {d} = {v} | NOT TRUE OR {k} = 'Paris' | {d} = {v} AND NULL | {d} = {v} AND 'x' LIKE 'y%' | {d} >= {v} AND DAY(dd) > 40 | (pd = '2022-03-30' AND {d} < {v}) OR (pd <> '2022-03-30' AND {d} = {v}) | CASE WHEN st = 'Paris' THEN {d} = {v} ELSE {d} < {v} END
DAYOFWEEK({d}) = DAYOFWEEK({v}) | WEEKDAY({d}) IN (5, 6) | WEEKOFYEAR({d}) = WEEKOFYEAR({v}) | EXTRACT(DAY FROM {d}) = DAY(dd) | MONTH({d}) = 4 OR {k} = st | QUARTER({d}) = 2 | DAYOFYEAR({d}) BETWEEN 85 AND 88 | YEAR({d}) = 2021 | LAST_DAY({d}) = LAST_DAY(dd) | DATEDIFF({d}, {v}) BETWEEN -2 AND 0 | ABS(DATEDIFF({d}, {v})) = 3 | PMOD(DATEDIFF({d}, {v}), 4) = 1
CAST({d} AS DATE) = ADD_MONTHS(ADD_MONTHS(dd, 1), -1) | TRUNC({d}, 'MM') = TRUNC(dd, 'MM') | TRUNC({d}, 'WEEK') = DATE_SUB(TRUNC(dd, 'WEEK'), 7) | DATE_TRUNC('MONTH', {d}) = DATE_TRUNC('MONTH', t) | DATE_FORMAT({d}, 'MM/dd') = DATE_FORMAT(t, 'MM/dd') | DATE_FORMAT({d}, 'yyyyMM') <> DATE_FORMAT(t, 'yyyyMM') | CAST({d} AS DATE) IN (dd, dd - INTERVAL 1 DAY, DATE_ADD(dd, 2)) | CAST({d} AS DATE) = dd - INTERVAL 1 WEEK OR {k} = 'us'
COALESCE({k}, 'x') = st AND {d} = {v} | NULLIF({k}, st) IS NULL AND {d} <= {v} | NVL2({k}, {d} = {v}, FALSE) | IF({k} = st, {d} = {v}, {d} < {v}) | GREATEST(CAST({d} AS DATE), dd) = dd | LEAST(CAST({d} AS DATE), dd) < dd | CASE {k} WHEN 'Paris' THEN 1 WHEN 'eu' THEN 2 ELSE 3 END < 3 AND {d} = {v} | {k} IS DISTINCT FROM st AND {d} IS NOT DISTINCT FROM {v} | EQUAL_NULL({k}, st) AND {d} = {v} | ({d} = {v}) = ({k} = st) | ({d} < {v}) IS TRUE | ({k} = st) IS NOT TRUE AND {d} = {v}
SOUNDEX({k}) = SOUNDEX(st) | DAYNAME({d}) = DAYNAME({v}) AND {k} = st | NOT (INITCAP({k}) = 'Paris' OR DAYNAME({d}) = 'Mon') | DATE_FORMAT({d}, 'EEEE') IN ('Monday', DATE_FORMAT({v}, 'EEEE')) | MD5(CONCAT({k}, '{{x}}')) < '8' AND {d} <= {v} | CRC32({k}) % 2 = 0 OR {d} = {v} | TRANSLATE({k}, 'aeiou', 'eioua') LIKE 'P%' | LEVENSHTEIN({k}, st) <= 3 AND {d} >= {v} | ASCII({k}) - 80 = 0 | COALESCE(SOUNDEX({k}), CAST({d} AS STRING)) > 'P' | MAKE_DT_INTERVAL(DAY({d})) IS NOT NULL AND {d} = {v} | CASE WHEN DAYNAME({d}) = 'Sun' THEN {k} = st ELSE {d} = {v} END | XXHASH64({k}, CAST({d} AS DATE)) % 3 = 0 | HEX({k}) = HEX('Paris') AND BIT_LENGTH({k}) = 40 | FORMAT_STRING('%s', {k}) = st OR DAYNAME({d}) < 'G'
UPPER({k}) = UPPER(st) | LENGTH({k}) = LENGTH(st) AND {d} = {v} | REVERSE({k}) > 'o' | REPLACE({k}, 'a', '') = REPLACE(st, 'a', '') | CONCAT({k}, '/', st) = 'Paris/Paris' | LPAD({k}, 2, '-') = LEFT(st, 2) | STARTSWITH({k}, LEFT(st, 1)) AND {d} = {v} | ENDSWITH({k}, 's') | CONTAINS({k}, 'o') OR {d} = {v} | RIGHT({k}, 1) IN ('s', 't') | TRIM(CONCAT(' ', {k})) = st AND {d} >= {v} | REPEAT(LEFT({k}, 1), 2) = 'PP'
"""
_DATASETS = (
    (SALES, {"d": "s.day", "k": "s.store", "v": "pd"}, "s.n"),
    (COSTS, {"d": "c.day", "k": "c.store", "v": "dd"}, "c.cost"),
    (HOURS, {"d": "h.at", "k": "h.region", "v": "t"}, "h.v"),
)
# Above joins USING and above PIVOT and UNPIVOT.
ABOVE = """
SELECT s.n, c.cost FROM b.sales s JOIN b.costs c USING (store) WHERE s.day = pd AND c.day = dd AND store = st
SELECT s.n, c.cost FROM b.sales s JOIN b.costs c USING (store) WHERE s.day = pd AND c.day = dd AND store RLIKE '^P'
SELECT s.n, c.cost FROM b.sales s JOIN b.costs c USING (store) WHERE s.day = pd AND c.day = dd AND store IN ('Paris', 'Lyon')
SELECT store, s.n, c.cost FROM b.sales s LEFT JOIN b.costs c USING (store) WHERE s.day = pd AND c.day = dd AND store = st
SELECT store, s.n, c.cost FROM b.sales s LEFT JOIN (SELECT * FROM b.costs WHERE day = dd) c USING (store) WHERE s.day = pd AND store = 'Paris'
SELECT store, s.n, c.cost FROM b.sales s RIGHT JOIN b.costs c USING (store) WHERE c.day = dd AND store = 'Lyon' AND s.day = pd
SELECT store, s.n, c.cost FROM (SELECT * FROM b.sales WHERE day = pd) s RIGHT JOIN b.costs c USING (store) WHERE c.day = dd AND store = 'Lyon'
SELECT s.n FROM b.sales s LEFT SEMI JOIN b.costs c USING (store) WHERE s.day = pd AND store = st
SELECT s.n FROM b.sales s JOIN b.sales x USING (day, store) WHERE day = pd AND store = st
SELECT s.n FROM b.sales s JOIN b.sales x USING (day) WHERE day BETWEEN DATE_SUB(pd, 1) AND pd AND x.store = st
SELECT day, s.n FROM b.sales s LEFT JOIN b.sales x USING (day, id) WHERE day = pd
SELECT s.n FROM b.sales s JOIN b.sales x USING (day) JOIN b.sales y USING (day) WHERE day = pd AND y.store = st
SELECT * FROM (SELECT day, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Detroit' AS q)) WHERE day = pd
SELECT * FROM (SELECT day, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Detroit' AS q)) WHERE day BETWEEN DATE_SUB(pd, 2) AND pd
SELECT * FROM (SELECT day, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Detroit' AS q)) WHERE day = pd AND p > 1
SELECT * FROM (SELECT day, store, n, id FROM b.sales) PIVOT (SUM(n) AS a, MAX(n) AS m FOR id IN (1 AS one, 2 AS two)) WHERE day = pd AND store = st
SELECT x.day, x.p FROM (SELECT day, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Lyon' AS q)) x WHERE x.day = pd
SELECT * FROM (SELECT CAST(day AS DATE) AS d, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Lyon' AS q)) WHERE d = dd
SELECT * FROM (SELECT day, store, n FROM b.sales WHERE day >= pd) PIVOT (SUM(n) FOR store IN ('Paris' AS p)) WHERE day = pd
SELECT * FROM (SELECT day, id, n FROM b.sales) UNPIVOT (v FOR w IN (n, id)) WHERE day = pd
SELECT u.v FROM (SELECT day, store, id, n FROM b.sales) UNPIVOT INCLUDE NULLS (v FOR w IN (n, id)) u WHERE u.day = pd AND u.store = st
SELECT * FROM b.sales PIVOT (SUM(n) FOR id IN (1 AS one, 2 AS two)) WHERE day = pd AND store = st
""".strip().splitlines()


def conditions() -> list[str]:
    """Queries of one dataset with a condition each, and those above joins and pivots."""
    queries = []
    for dataset, names, number in _DATASETS:
        texts = [part.strip() for line in FAMILIES.strip().splitlines() for part in line.split(" | ")]
        texts += [f"{{d}} {operator} {{v}}" for operator in _OPERATORS]
        texts += [
            f"{{k}} {operator} {value} AND {{d}} <= {{v}}" for operator, value in product(_OPERATORS, ("st", "'Lyon'"))
        ]
        texts += [
            f"{{d}} BETWEEN DATE_SUB({{v}}, {back}) AND DATE_ADD({{v}}, {on})"
            for back, on in product((0, 1, 3), (0, 2))
        ]
        queries += [f"SELECT {number} AS n FROM {dataset} WHERE {text.format(**names)}" for text in texts]
    queries += [f"SELECT s.n FROM {SALES} WHERE {condition}" for condition in SINGLE]
    draw = random.Random(500)
    for dataset, alias, number in ((SALES, "s", "s.n"), (COSTS, "c", "c.cost")):
        queries += [f"SELECT {number} AS n FROM {dataset} WHERE {_predicate(draw, alias)}" for _ in range(40)]
    return [*queries, *ABOVE]
