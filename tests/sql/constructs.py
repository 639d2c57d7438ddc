# ruff: noqa: E501 - queries, one a line
"""Queries over three partitioned datasets for the soundness of dependencies: every construct, and random ones.

`sales` has days as text, `costs` days as dates, `hours` moments as timestamps; each is partitioned by a second column
too. The scope's variables: `pd` (a day as text), `dd` (the same as a date), `t` (its moment), `st` (a store).
"""

from __future__ import annotations

import random
import re
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SALES, COSTS, HOURS = "b.sales s", "b.costs c", "b.hours h"

SINGLE = """
s.day = pd
s.day = :pd AND s.store = st
s.day = pd AND s.store = 'Paris'
s.day BETWEEN DATE_SUB(pd, 3) AND pd
s.day BETWEEN CAST(DATE_SUB(pd, 3) AS STRING) AND pd
s.day >= DATE_SUB(dd, 1) AND s.day < DATE_ADD(dd, 1)
s.day NOT BETWEEN DATE_SUB(pd, 2) AND pd
s.day IN (pd, CAST(DATE_SUB(pd, 7) AS STRING))
s.day IN (pd, '2022-03-28') AND s.n > 2
s.day NOT IN (pd, '2022-03-28')
(s.day = pd OR s.n > 90)
(s.day = pd AND s.store = 'Paris') OR (s.day = CAST(DATE_SUB(pd, 1) AS STRING) AND s.store = 'Detroit')
NOT (s.day < pd OR s.store = st)
NOT (s.day < pd AND s.n > 3)
NOT (s.day <> pd)
s.day = pd OR s.store = st
s.day LIKE '2022-03%'
s.day NOT LIKE CONCAT(SUBSTR(pd, 1, 7), '%')
SUBSTR(s.day, 1, 7) = SUBSTR(pd, 1, 7)
TO_DATE(s.day) = dd
CAST(s.day AS DATE) >= DATE_TRUNC('WEEK', t)
s.day = DATE_FORMAT(t, 'yyyy-MM-dd')
DATE_FORMAT(s.day, 'yyyyMM') = DATE_FORMAT(t, 'yyyyMM')
DAYOFWEEK(s.day) = DAYOFWEEK(pd)
DAYOFWEEK(s.day) IN (1, 7) AND s.day <= pd
WEEKOFYEAR(s.day) = WEEKOFYEAR(dd)
MONTH(s.day) = MONTH(dd) AND DAY(s.day) <= DAY(dd)
DATEDIFF(pd, s.day) BETWEEN 0 AND 2
DATEDIFF(s.day, dd) = 0 AND s.n IS NOT NULL
s.day = LAST_DAY(ADD_MONTHS(dd, -1))
s.day >= TRUNC(dd, 'MM') AND s.day <= dd
s.day > CAST(dd - INTERVAL 2 DAYS AS STRING) AND s.day <= pd
COALESCE(s.day, 'x') = pd
NULLIF(s.day, pd) IS NULL
s.day IS NOT NULL AND s.day = pd
s.day IS NULL
s.day <=> pd
s.day IS DISTINCT FROM pd AND s.store = st
s.day IS NOT DISTINCT FROM pd
CASE WHEN s.store = 'Paris' THEN s.day = pd ELSE s.day < pd END
IF(s.store = st, s.day, '') = pd
(s.day = pd) = (s.store = st)
CONCAT(s.day, '/', s.store) = CONCAT(pd, '/', st)
s.day || s.store > pd || st
UPPER(s.store) = UPPER(st) AND s.day = pd
LENGTH(s.store) > 5 AND s.day = pd
LPAD(DAY(s.day), 2, '0') = SUBSTRING(pd, 9, 2)
GREATEST(s.day, pd) = pd AND LEAST(s.day, '2022-03-29') = '2022-03-29'
s.n % 2 = 0 AND s.day = pd
s.n = DAY(s.day) AND s.day <= pd
s.day = pd AND TRUE
s.day = pd AND (FALSE OR s.store = st)
(s.day = pd) IS TRUE
(s.day > pd) IS NOT TRUE
s.day = pd AND s.store IN ('Paris', st)
REGEXP_REPLACE(s.day, '-', '') = REGEXP_REPLACE(pd, '-', '') AND s.store = st
s.store RLIKE 'a' AND s.day = pd
STARTSWITH(s.day, LEFT(pd, 9))
s.day = DATE_ADD(pd, CASE WHEN s.store = 'Paris' THEN -1 ELSE 0 END)
s.day > pd AND s.day < pd
s.day = '2022-03-30' OR pd = '2022-03-30'
YEAR(s.day) * 100 + MONTH(s.day) = YEAR(dd) * 100 + MONTH(dd)
s.day = CAST(TO_DATE(DATE_FORMAT(t, 'yyyyMMdd'), 'yyyyMMdd') AS STRING)
s.day < pd AND s.day >= CAST(ADD_MONTHS(dd, -1) AS STRING) AND s.store <> st
(s.day, s.store) IN ((pd, st), ('2022-03-28', 'Paris'))
s.day = pd AND NOT (s.store = st)
ABS(DATEDIFF(s.day, pd)) <= 1
PMOD(DATEDIFF(s.day, dd), 7) = 0
WEEKDAY(s.day) < 5 AND s.day <= pd
""".strip().splitlines()

# Whole queries; {S}, {C} and {H} stand for conditions on one of the datasets.
WHOLE = """
SELECT s.n FROM b.sales s WHERE s.day = pd ORDER BY s.n LIMIT 3
SELECT DISTINCT s.store AS store FROM b.sales s WHERE s.day <= pd
SELECT COUNT(*) AS n, MAX(s.n) AS m FROM b.sales s WHERE s.day = pd
SELECT s.store AS store, SUM(s.n) AS n FROM b.sales s WHERE s.day = pd GROUP BY s.store
SELECT s.store AS store, SUM(s.n) AS n FROM b.sales s GROUP BY s.store, s.day HAVING s.day = pd
SELECT s.day AS day, SUM(s.n) AS n FROM b.sales s GROUP BY 1 HAVING day = pd AND SUM(s.n) > 0
SELECT s.day AS day, s.store AS store, SUM(s.n) AS n FROM b.sales s WHERE s.day >= pd GROUP BY ROLLUP (s.day, s.store)
SELECT * FROM (SELECT s.day AS d, s.store AS k, SUM(s.n) AS n FROM b.sales s GROUP BY CUBE (s.day, s.store)) x WHERE x.d = pd
SELECT * FROM (SELECT s.day AS d, s.store AS k, SUM(s.n) AS n FROM b.sales s GROUP BY GROUPING SETS ((s.day), (s.store))) x WHERE x.d IS NULL OR x.d = pd
SELECT * FROM (SELECT s.day AS d, SUM(s.n) AS n FROM b.sales s GROUP BY s.day) x WHERE x.d = pd
SELECT * FROM (SELECT SUBSTR(s.day, 1, 7) AS m, SUM(s.n) AS n FROM b.sales s GROUP BY SUBSTR(s.day, 1, 7)) x WHERE x.m = SUBSTR(pd, 1, 7)
SELECT * FROM (SELECT MAX(s.day) AS d, s.store AS k FROM b.sales s GROUP BY s.store) x WHERE x.d = pd
SELECT * FROM (SELECT MAX(s.day) AS d FROM b.sales s) x WHERE x.d >= pd
SELECT * FROM (SELECT pd AS d, COUNT(*) AS n FROM b.sales s WHERE s.day < pd) x WHERE x.d = '2022-03-30'
SELECT s.n, ROW_NUMBER() OVER (PARTITION BY s.store ORDER BY s.n, s.id) AS r FROM b.sales s WHERE s.day = pd
SELECT * FROM (SELECT s.n, s.day AS d, ROW_NUMBER() OVER (PARTITION BY s.day ORDER BY s.n, s.id) AS r FROM b.sales s) x WHERE x.d = pd AND x.r < 3
SELECT * FROM (SELECT s.n, s.day AS d, ROW_NUMBER() OVER (PARTITION BY s.store ORDER BY s.n, s.id) AS r FROM b.sales s) x WHERE x.d = pd
SELECT * FROM (SELECT s.n, s.day AS d, s.store AS k, SUM(s.n) OVER (PARTITION BY s.store, s.day) AS w, COUNT(*) OVER (PARTITION BY s.day) AS v FROM b.sales s) x WHERE x.d = pd AND x.k = st
SELECT * FROM (SELECT s.day AS d, SUM(s.n) AS n, SUM(SUM(s.n)) OVER (ORDER BY s.day) AS run FROM b.sales s GROUP BY s.day) x WHERE x.d = pd
SELECT * FROM (SELECT s.day AS d, s.store AS k, SUM(s.n) AS n, RANK() OVER (PARTITION BY s.day ORDER BY SUM(s.n)) AS r FROM b.sales s GROUP BY s.day, s.store) x WHERE x.d = pd
SELECT * FROM (SELECT s.n AS n, LAG(s.n) OVER w AS p, s.day AS d FROM b.sales s WINDOW w AS (PARTITION BY s.store ORDER BY s.day, s.id)) x WHERE x.d = pd
SELECT * FROM (SELECT * FROM b.sales ORDER BY n, id LIMIT 20) x WHERE x.day = pd
SELECT * FROM (SELECT * FROM b.sales ORDER BY n, id LIMIT 5 OFFSET 3) x WHERE x.store = st
WITH x AS (SELECT * FROM b.sales WHERE day = pd) SELECT COUNT(*) AS n FROM x
WITH x AS (SELECT * FROM b.sales), y AS (SELECT * FROM x WHERE store = st) SELECT COUNT(*) AS n FROM y WHERE day = pd
WITH x AS (SELECT * FROM b.sales) SELECT a.n, b.n AS m FROM x a JOIN x b ON a.id = b.id WHERE a.day = pd AND b.day = CAST(DATE_SUB(pd, 1) AS STRING)
WITH x (d, k) AS (SELECT day, store FROM b.sales) SELECT COUNT(*) AS n FROM x WHERE d = pd AND k = st
WITH x AS (SELECT day AS d, COUNT(*) AS n FROM b.sales GROUP BY day) SELECT a.n, b.n AS m FROM x a LEFT JOIN x b ON b.d = CAST(DATE_SUB(a.d, 1) AS STRING) WHERE a.d = pd
WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT r.k, s.n FROM r JOIN b.sales s ON s.n = r.k WHERE s.day = pd
SELECT day AS d FROM b.sales WHERE day = pd UNION ALL SELECT CAST(day AS STRING) FROM b.costs WHERE day = dd
SELECT * FROM (SELECT day AS d, n FROM b.sales UNION ALL SELECT store, n FROM b.sales) u WHERE u.d = pd
SELECT * FROM (SELECT day AS d, n FROM b.sales UNION SELECT CAST(day AS STRING), cost FROM b.costs) u WHERE u.d = pd
SELECT * FROM (SELECT day AS d FROM b.sales UNION ALL SELECT day FROM b.costs) u WHERE u.d = dd
SELECT * FROM (SELECT day AS d, store AS k FROM b.sales INTERSECT SELECT CAST(day AS STRING), store FROM b.costs) u WHERE u.d >= pd
SELECT * FROM (SELECT day AS d, store AS k FROM b.sales EXCEPT SELECT CAST(day AS STRING), store FROM b.costs) u WHERE u.d = pd
SELECT * FROM (SELECT day AS d, store AS k FROM b.sales EXCEPT ALL SELECT CAST(day AS STRING), store FROM b.costs) u WHERE u.d = pd
SELECT * FROM ((SELECT day AS d, n FROM b.sales ORDER BY n, id LIMIT 9) UNION ALL SELECT day, n FROM b.sales WHERE store = st) u WHERE u.d = pd
SELECT c.cost, u.n FROM b.costs c JOIN (SELECT day AS d, n FROM b.sales WHERE day = pd UNION ALL SELECT day, n FROM b.sales WHERE store = st) u ON CAST(c.day AS STRING) = u.d WHERE c.store = st
SELECT u.n FROM (SELECT n, 'Paris' AS shop FROM b.sales WHERE day = pd UNION ALL SELECT cost, 'Detroit' FROM b.costs WHERE day = dd) u WHERE u.shop = st
SELECT u.a, u.n FROM (SELECT 'Paris' AS a, 'x' AS b, 1 AS n UNION ALL SELECT s.store, s.day AS store, s.n FROM b.sales s WHERE s.day = pd) u WHERE u.a = st
SELECT u.a, u.n FROM (SELECT 'Paris' AS a, 'Paris' AS b, 1 AS n UNION ALL SELECT s.day AS k, s.store AS k, s.n FROM b.sales s) u WHERE u.a = pd AND u.b = st
SELECT s.n, c.cost, h.v AS m FROM b.sales s JOIN (b.costs c JOIN b.hours h ON c.cost > h.v AND TO_DATE(h.at) = c.day) ON s.day = CAST(c.day AS STRING) WHERE s.day = pd
SELECT s.n, c.cost, k.n AS m FROM b.sales s LEFT JOIN (b.costs c JOIN b.sales k ON c.store = k.store AND CAST(c.day AS STRING) = k.day) ON s.day = k.day AND c.store = st WHERE s.day = pd
SELECT s.n, c.cost, k.n AS m FROM b.sales s LEFT JOIN (b.sales k JOIN b.costs c ON c.day = dd) ON s.day = k.day AND k.store = st WHERE s.day >= pd AND c.cost > 2
SELECT s.n, c.cost, k.n AS m FROM b.sales s LEFT JOIN (b.sales k JOIN b.costs c ON c.day = dd) ON s.day = k.day AND s.store = st WHERE s.day = pd AND k.n IS NULL
SELECT s.n, c.cost, k.n AS m FROM b.sales s RIGHT JOIN (b.sales k JOIN b.costs c ON CAST(c.day AS STRING) = k.day) ON s.day = k.day AND k.day = pd AND s.store = st
SELECT s.n, c.cost, k.n AS m FROM b.sales s FULL JOIN (b.sales k JOIN b.costs c ON CAST(c.day AS STRING) = k.day) ON s.day = k.day AND k.day = pd WHERE s.store = st
SELECT s.n, c.cost, k.n AS m FROM b.sales s JOIN (b.sales k LEFT JOIN b.costs c ON CAST(c.day AS STRING) = k.day AND c.store = st) ON s.day = k.day WHERE s.day = pd
SELECT s.n, c.cost, k.n AS m FROM (b.sales k LEFT JOIN b.costs c ON CAST(c.day AS STRING) = k.day AND c.day = dd) JOIN b.sales s ON s.day = k.day WHERE s.day >= pd
SELECT s.n, c.cost, k.n AS m FROM b.sales s LEFT JOIN ((b.sales k JOIN b.costs c ON k.day = CAST(c.day AS STRING)) JOIN b.costs g ON g.store = c.store AND g.day = dd) ON s.day = k.day AND s.n = k.n WHERE s.day = pd
SELECT COUNT(*) AS n FROM b.sales s LEFT JOIN (b.sales k CROSS JOIN b.costs c) ON s.day = k.day AND c.day = dd AND k.n = c.cost LEFT JOIN b.costs g ON g.day = c.day WHERE s.day = pd
SELECT COUNT(*) AS n FROM b.sales s LEFT JOIN (b.sales k JOIN b.costs c ON k.day IN (SELECT x.day FROM b.sales x WHERE x.store = st)) ON s.day = k.day AND c.day = dd WHERE s.day = pd
SELECT COUNT(*) AS n FROM b.costs g RIGHT JOIN (SELECT * FROM b.sales WHERE day = pd) s ON g.cost = s.n LEFT JOIN (b.sales k JOIN b.costs c ON k.day = CAST(c.day AS STRING)) ON s.day = k.day AND g.day = c.day
SELECT s.n, c.shop FROM b.sales s JOIN (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c ON s.store = c.shop WHERE s.day = pd
SELECT s.n, c.area FROM b.sales s JOIN (SELECT 'Paris' AS shop, 'Paris' AS area UNION ALL SELECT 'Lyon', 'Detroit') c ON s.store = c.shop WHERE s.day = pd AND c.area = st
SELECT s.n, c.shop FROM b.sales s LEFT JOIN (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c ON s.store = c.shop WHERE s.day = pd
SELECT s.n, c.shop FROM (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon' UNION ALL SELECT NULL) c LEFT JOIN b.sales s ON s.store = c.shop AND s.day = pd
SELECT s.n, c.shop FROM b.sales s FULL JOIN (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c ON s.store = c.shop AND s.day = pd
SELECT s.n FROM b.sales s LEFT SEMI JOIN (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c ON s.store = c.shop WHERE s.day = pd
SELECT s.n FROM b.sales s LEFT ANTI JOIN (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c ON s.store = c.shop WHERE s.day = pd
SELECT c.shop FROM (SELECT 'Paris' AS shop UNION ALL SELECT 'Lyon') c LEFT ANTI JOIN b.sales s ON s.store = c.shop AND s.day = pd
SELECT s.n, k.cost FROM b.sales s JOIN (SELECT 'Paris' AS shop, cost, day AS d FROM b.costs UNION ALL SELECT store, cost, day FROM b.costs) k ON s.store = k.shop AND CAST(k.d AS STRING) = s.day WHERE s.day = pd
SELECT s.n, c.shop FROM b.sales s JOIN (VALUES ('Paris'), ('Lyon')) AS c(shop) ON s.store = c.shop WHERE s.day = pd
SELECT s.n, c.rank FROM b.sales s JOIN VALUES ('Paris', 1), ('Detroit', 2), (NULL, 3) AS c(shop, rank) ON s.store <=> c.shop AND s.n > c.rank WHERE s.day = pd
SELECT s.n, c.col2 FROM b.sales s JOIN (VALUES ('Paris', 1), (st, 2)) AS c ON s.store = c.col1 WHERE s.day = pd
WITH c(shop, area) AS (VALUES ('Paris', 'Lyon'), ('Lyon', 'Detroit')) SELECT s.n FROM b.sales s JOIN c ON s.store = c.shop WHERE s.day = pd AND c.area = st
WITH c AS (SELECT DISTINCT UPPER(shop) AS big, shop FROM VALUES ('Paris'), ('Lyon'), ('Paris') AS w(shop)) SELECT s.n FROM b.sales s JOIN c ON UPPER(s.store) = c.big WHERE s.day = pd
SELECT s.cost, c.day FROM b.costs s JOIN (VALUES (DATE'2022-03-27'), (dd)) AS c(day) ON s.day = c.day
SELECT s.n, r.id FROM RANGE(4) r JOIN b.sales s ON s.n > r.id WHERE s.day = pd
SELECT s.n FROM b.sales s CROSS JOIN RANGE(1, 3) WHERE s.day = pd AND s.store = st
SELECT s.n, r.id FROM b.sales s LEFT JOIN RANGE(3) AS r ON s.n = r.id AND s.day = pd
SELECT COUNT(*) AS n, MAX(s.n) AS m FROM b.sales s WHERE s.day = pd GROUP BY s.store, WINDOW(CAST(s.day AS TIMESTAMP), '36 hours')
SELECT WINDOW(CAST(s.day AS TIMESTAMP), '2 days', '1 day').start AS w, COUNT(*) AS n FROM b.sales s WHERE s.day >= pd GROUP BY s.store, WINDOW(CAST(s.day AS TIMESTAMP), '2 days', '1 day')
SELECT s.n, c.shop FROM b.sales s LEFT JOIN (VALUES ('Paris'), ('Lyon')) AS c(shop) ON s.store = c.shop WHERE s.day = pd
SELECT s.n, c.shop FROM (VALUES ('Paris'), ('Lyon'), (NULL)) AS c(shop) LEFT JOIN b.sales s ON s.store = c.shop AND s.day = pd
SELECT s.n, c.shop FROM b.sales s FULL JOIN (VALUES ('Paris'), ('Lyon')) AS c(shop) ON s.store = c.shop AND s.day = pd
SELECT s.n FROM b.sales s LEFT SEMI JOIN (VALUES ('Paris'), ('Lyon')) AS c(shop) ON s.store = c.shop WHERE s.day = pd
SELECT s.n FROM b.sales s LEFT ANTI JOIN (VALUES ('Paris'), ('Lyon')) AS c(shop) ON s.store = c.shop WHERE s.day = pd
SELECT s.n FROM b.sales s JOIN (VALUES ('Paris')) AS c(shop) ON s.store = c.shop WHERE s.day = pd
SELECT s.cost FROM b.costs s JOIN (VALUES (1), (2.5)) AS c(n) ON DAY(s.day) > c.n WHERE s.day = dd
SELECT s.n FROM b.sales s JOIN (SELECT * FROM (VALUES ('Paris', 1), ('Lyon', 2)) AS w(shop, n) LIMIT 1) c ON s.store >= c.shop OR s.n < 0 WHERE s.day = pd
SELECT s.n FROM b.sales s JOIN (SELECT 'Paris' AS shop EXCEPT SELECT 'Lyon') c ON s.store <> c.shop WHERE s.day = pd
SELECT s.n FROM b.sales s JOIN (SELECT 'Paris' AS shop, n FROM b.sales WHERE day = pd UNION ALL SELECT 'Lyon', NULL) c ON s.store = c.shop OR s.n = c.n WHERE s.day = pd
SELECT s.n FROM b.sales s WHERE s.day = pd AND EXISTS (SELECT 1 FROM b.costs c WHERE c.day = s.day)
SELECT s.n FROM b.sales s WHERE s.day = pd AND NOT EXISTS (SELECT 1 FROM b.costs c WHERE c.day = s.day AND c.store = s.store)
SELECT s.n FROM b.sales s WHERE s.day = pd AND EXISTS (SELECT 1 FROM b.costs c WHERE c.day = DATE_SUB(s.day, 1) AND c.cost > 2)
SELECT s.n FROM b.sales s WHERE s.day >= pd AND s.store IN (SELECT c.store FROM b.costs c WHERE c.day = dd)
SELECT s.n FROM b.sales s WHERE s.day = pd AND s.store NOT IN (SELECT c.store FROM b.costs c WHERE c.day < dd)
SELECT s.n FROM b.sales s WHERE s.day = pd AND s.n > (SELECT AVG(c.cost) FROM b.costs c WHERE c.day = dd)
SELECT s.n FROM b.sales s WHERE s.day = (SELECT MAX(x.day) FROM b.sales x WHERE x.day <= pd)
SELECT s.n, (SELECT MAX(c.cost) FROM b.costs c WHERE c.day = s.day AND c.store = s.store) AS m FROM b.sales s WHERE s.day = pd
SELECT s.n, (SELECT COUNT(*) FROM b.costs c WHERE c.day <= dd) AS m FROM b.sales s WHERE s.day = pd
SELECT s.n FROM b.sales s WHERE s.day = pd OR EXISTS (SELECT 1 FROM b.costs c WHERE c.cost = s.n AND c.day = dd)
SELECT s.store AS k, SUM(s.n) AS n FROM b.sales s WHERE s.day = pd GROUP BY s.store HAVING SUM(s.n) > (SELECT MIN(c.cost) FROM b.costs c WHERE c.day = dd)
SELECT s.n FROM b.sales s LEFT JOIN b.costs c ON c.day = s.day AND c.store = s.store WHERE s.day = pd AND EXISTS (SELECT 1 FROM b.hours h WHERE CAST(h.at AS DATE) <=> c.day)
SELECT s.n FROM b.sales s LEFT JOIN b.costs k ON k.day = s.day WHERE s.day = pd AND NOT EXISTS (SELECT 1 FROM b.costs x WHERE x.day = k.day AND x.store = 'Lyon')
SELECT s.n, x.m FROM b.sales s, LATERAL (SELECT MAX(c.cost) AS m FROM b.costs c WHERE c.day = s.day) x WHERE s.day = pd
SELECT s.n, x.cost FROM b.sales s LEFT JOIN LATERAL (SELECT c.cost FROM b.costs c WHERE c.day = DATE_SUB(s.day, 1) AND c.store = s.store) x ON TRUE WHERE s.day = pd
SELECT s.n, e.w FROM b.sales s LATERAL VIEW EXPLODE(ARRAY(1, 2)) e AS w WHERE s.day = pd
SELECT s.n, EXPLODE(ARRAY(1, 2)) AS w FROM b.sales s WHERE s.day = pd AND s.store = st
SELECT * FROM (SELECT s.day AS d, EXPLODE(ARRAY(s.n, 7)) AS w FROM b.sales s) x WHERE x.d = pd AND x.w = 7
SELECT * FROM (SELECT store, n FROM b.sales WHERE day = pd) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Detroit' AS q))
SELECT * FROM (SELECT day, store, n FROM b.sales) PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Detroit' AS q)) WHERE day = pd
SELECT s.n FROM b.sales s CROSS JOIN b.costs c WHERE s.day = pd AND c.day = dd AND s.store = c.store
SELECT s.n FROM b.sales s, b.costs c WHERE s.day = CAST(c.day AS STRING) AND c.day = dd
SELECT s.n, c.cost FROM b.sales s JOIN b.costs c USING (store) WHERE s.day = pd AND c.day = dd
SELECT store, s.n, c.cost FROM b.sales s LEFT JOIN b.costs c USING (store) WHERE s.day = pd AND store = st
SELECT store, s.n, c.cost FROM b.sales s FULL JOIN b.costs c USING (store) WHERE store = st
SELECT a.n FROM b.sales a JOIN b.sales b ON a.day = b.day AND a.store = b.store WHERE b.day = pd AND b.n > 5
SELECT a.n FROM b.sales a JOIN b.sales b ON a.day = CAST(DATE_SUB(b.day, 1) AS STRING) JOIN b.sales d ON d.day = CAST(DATE_SUB(a.day, 1) AS STRING) WHERE b.day = pd
SELECT s.n FROM b.sales s LEFT JOIN b.costs c ON c.day = s.day JOIN b.costs d ON d.day = c.day WHERE s.day = pd
SELECT s.n, d.cost FROM b.sales s LEFT JOIN b.costs c ON c.day = s.day AND c.store = 'Lyon' LEFT JOIN b.costs d ON d.day = DATE_ADD(c.day, 1) WHERE s.day = pd
SELECT s.n, d.cost FROM b.sales s LEFT JOIN b.costs c ON c.day = s.day FULL JOIN b.costs d ON d.store = s.store WHERE s.day = pd
SELECT s.n, d.cost FROM b.sales s RIGHT JOIN b.costs c ON c.day = s.day LEFT JOIN b.costs d ON d.day = c.day WHERE c.day = dd
SELECT s.n, c.cost FROM b.sales s FULL JOIN b.costs c ON c.day = s.day WHERE s.day = pd OR c.day = dd
SELECT s.n, c.cost FROM b.sales s FULL JOIN b.costs c ON c.day = s.day WHERE s.day = pd AND c.store = st
SELECT s.n, c.cost FROM b.sales s FULL JOIN b.costs c ON c.day = s.day AND c.store = st AND s.store = st
SELECT s.n, c.cost FROM (SELECT * FROM b.sales WHERE day = pd) s FULL JOIN (SELECT * FROM b.costs WHERE day = dd) c ON c.store = s.store
SELECT h.v FROM b.hours h WHERE h.at >= t AND h.at < t + INTERVAL 1 DAY
SELECT h.v FROM b.hours h WHERE CAST(h.at AS DATE) = dd AND h.region = 'eu'
SELECT h.v FROM b.hours h WHERE DATE_TRUNC('DAY', h.at) = t
SELECT h.v FROM b.hours h WHERE HOUR(h.at) = 6 AND h.at <= t
SELECT h.v FROM b.hours h WHERE DATE_FORMAT(h.at, 'yyyy-MM-dd') = pd
SELECT h.v FROM b.hours h WHERE h.at BETWEEN '2022-03-30 06:00:00' AND t
SELECT h.v FROM b.hours h WHERE h.at = pd
SELECT h.v FROM b.hours h WHERE h.at > dd AND h.at <= DATE_ADD(dd, 1)
SELECT h.v FROM b.hours h WHERE DATE_FORMAT(FROM_UTC_TIMESTAMP(h.at, 'America/New_York'), 'yyyy-MM-dd') = pd
SELECT h.v, s.n FROM b.hours h JOIN b.sales s ON s.day = CAST(h.at AS DATE) WHERE s.day = pd AND s.store = st
SELECT h.v, s.n FROM b.hours h LEFT JOIN b.sales s ON s.day = DATE_FORMAT(h.at, 'yyyy-MM-dd') WHERE h.at >= t AND h.region = 'us'
SELECT h.v FROM b.hours h WHERE h.at >= t - INTERVAL 12 HOURS AND h.at < t
SELECT h.v FROM b.hours h LEFT ANTI JOIN b.sales s ON s.day = CAST(h.at AS DATE) AND s.n > 3 WHERE h.at >= t
SELECT h.v FROM b.hours h LEFT SEMI JOIN b.sales s ON s.day = CAST(h.at AS DATE) AND s.store = st WHERE h.region = 'eu' AND h.at < t
SELECT p.name, SUM(s.n) AS n FROM b.products p JOIN b.sales s ON s.id = p.id WHERE s.day = pd GROUP BY p.name
SELECT p.name, s.n FROM b.products p LEFT JOIN b.sales s ON s.id = p.id AND s.day = pd
SELECT p.name, s.n FROM b.products p RIGHT JOIN b.sales s ON s.id = p.id AND s.store = st WHERE s.day = pd
SELECT p.name FROM b.products p WHERE p.id IN (SELECT s.id FROM b.sales s WHERE s.day = pd)
SELECT x.v AS v, s.n FROM (VALUES ('Paris'), ('Lyon')) AS x(v) JOIN b.sales s ON s.store = x.v WHERE s.day = pd
SELECT s.day || '!' AS d FROM b.sales s WHERE s.day = pd
SELECT * FROM (SELECT s.day || '!' AS d, s.n FROM b.sales s) x WHERE x.d = pd || '!'
SELECT * FROM (SELECT CASE WHEN s.n > 5 THEN s.day ELSE 'none' END AS d FROM b.sales s) x WHERE x.d = 'none' OR x.d = pd
SELECT * FROM (SELECT COALESCE(c.day, dd) AS d, s.n FROM b.sales s LEFT JOIN b.costs c ON c.day = s.day AND c.store = 'Lyon' WHERE s.store = st) x WHERE x.d = dd
SELECT COUNT(*) FILTER (WHERE s.day = pd) AS n FROM b.sales s WHERE s.store = st
SELECT SUM(CASE WHEN s.day = pd THEN s.n ELSE 0 END) AS n FROM b.sales s WHERE s.day <= pd
SELECT s.n FROM b.sales s WHERE s.day = pd AND s.id IN (SELECT x.id FROM b.sales x WHERE x.day = CAST(DATE_SUB(s.day, 1) AS STRING))
SELECT a.k, b.k AS j FROM (SELECT DISTINCT store AS k, day AS d FROM b.sales) a JOIN (SELECT store AS k, day AS d FROM b.costs GROUP BY ALL) b ON a.k = b.k AND b.d = a.d WHERE a.d = pd
SELECT SUBSTR(s.day, 1, 7) AS day, SUM(s.n) AS n FROM b.sales s GROUP BY s.day HAVING day = SUBSTR(pd, 1, 7)
SELECT CAST(DATE_ADD(s.day, 1) AS STRING) AS day, s.n FROM b.sales s WHERE day = pd
SELECT MAX(x.n) AS n FROM (SELECT SUM(s.n) AS n FROM b.sales s WHERE s.day = pd GROUP BY s.store) x
""".strip().splitlines()

_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_PLACES = (
    ("c.day = s.day AND s.store = c.store", "s.day = pd"),
    ("c.day = s.day", "s.day BETWEEN DATE_SUB(pd, 1) AND pd AND s.store = st"),
    ("c.day = s.day AND c.day = dd", "s.n > 3"),
    ("c.store = s.store AND s.day = pd AND c.day = dd", "TRUE"),
    ("c.day = DATE_ADD(s.day, 1)", "s.day = pd"),
    ("c.day = s.day AND (s.store = st OR c.store = 'Paris')", "NOT (s.day <> pd)"),
)
_RIGHT = (
    ("c.day = s.day", "c.day = dd"),
    ("c.day = s.day AND c.store = s.store", "s.day = pd AND c.day IS NULL"),
    ("c.store = s.store AND c.day = dd", "s.day = pd AND COALESCE(c.store, 'none') = 'none'"),
    ("c.day = s.day", "s.day = pd OR c.store = st"),
    ("c.day = s.day AND c.store = 'Lyon'", "c.day <=> dd"),
    ("c.day = s.day", "NOT (c.day IN (dd, '2022-03-28'))"),
)


def constructs() -> list[str]:
    """At least 150 queries, no two of one construct."""
    queries = [f"SELECT s.n, s.store AS k FROM {SALES} WHERE {condition}" for condition in SINGLE]
    queries += [query for query in WHOLE if query]
    for join, (on, where) in product(_JOINS, _PLACES):
        queries.append(_joined(join, on, where))
    for join, (on, where) in product(_JOINS[:5], _RIGHT):
        queries.append(_joined(join, on, where))
    return queries


def _joined(join: str, on: str, where: str) -> str:
    both = "" if "SEMI" in join or "ANTI" in join else ", c.cost"
    condition = f"WHERE {on} AND {where}" if join.startswith("CROSS") else f"ON {on} WHERE {where}"
    return f"SELECT s.n{both} FROM {SALES} {join} {COSTS} {condition}"


def _atom(random_: random.Random, alias: str) -> str:
    day, value = {"s": ("s.day", "pd"), "c": ("c.day", "dd")}[alias]
    number = {"s": "s.n", "c": "c.cost"}[alias]
    back = random_.randint(-2, 4)
    return random_.choice(
        [
            f"{day} {random_.choice(['=', '<', '<=', '>', '>=', '<>', '<=>'])} {value}",
            f"{day} BETWEEN DATE_SUB({value}, {abs(back)}) AND {value}",
            f"{day} {random_.choice(['=', '<', '>='])} DATE_SUB({value}, {back})",
            f"{day} IN ({value}, '2022-03-2{random_.randint(5, 9)}')",
            f"{day} IS {random_.choice(['', 'NOT '])}NULL",
            f"{alias}.store {random_.choice(['=', '<>', '>', '<=>'])} {random_.choice(['st', repr('Paris'), repr('Lyon')])}",
            f"{alias}.store IN ('Paris', st)",
            f"{alias}.store LIKE '{random_.choice(['P', 'D', '%o'])}%'",
            f"DAYOFWEEK({day}) {random_.choice(['=', '>'])} {random_.randint(1, 7)}",
            f"DAY({day}) % 2 = {random_.randint(0, 1)}",
            f"DATEDIFF({day}, {value}) {random_.choice(['<', '=', '>='])} {back}",
            f"COALESCE({alias}.store, 'x') = {random_.choice(['st', repr('x')])}",
            f"{number} > {random_.randint(1, 9)}",
            f"({number} > {random_.randint(1, 9)}) = ({day} = {value})",
            f"CASE WHEN {alias}.store = st THEN {day} < {value} ELSE {number} > 2 END",
            f"TRUNC({day}, 'WEEK') = TRUNC({value}, 'WEEK')",
            f"CONCAT({day}, {alias}.store) > CONCAT({value}, st)",
        ]
    )


def _predicate(random_: random.Random, aliases: str, depth: int = 2) -> str:
    if depth == 0 or random_.random() < 0.3:
        return _atom(random_, random_.choice(aliases))
    kind = random_.random()
    left, right = _predicate(random_, aliases, depth - 1), _predicate(random_, aliases, depth - 1)
    if kind < 0.25:
        return f"NOT ({left})"
    return f"({left} {'AND' if kind < 0.65 else 'OR'} {right})"


def words(queries: Iterable[str]) -> set[str]:
    """The words of SQL that queries are made of: the names of constructs, functions and types, which are in capitals."""
    return {word for query in queries for word in re.findall(r"\b[A-Z_]{2,}\b", re.sub(r"'[^']*'", "", query))}


def random_queries(count: int, seed: int) -> list[str]:
    """Random conditions, on either side of random joins, in and above groups, windows, unions and subqueries."""
    random_ = random.Random(seed)
    queries = []
    for _ in range(count):
        p, q = _predicate(random_, "s"), _predicate(random_, "c")
        both = _predicate(random_, "sc", 3)
        on = random_.choice(["c.day = s.day", "c.store = s.store", "c.day = DATE_SUB(s.day, 1) AND c.store = s.store"])
        join = random_.choice(_JOINS[:4])
        x = p.replace("s.n", "x.n").replace("s.", "x.")
        queries.append(
            random_.choice(
                [
                    f"SELECT s.n FROM {SALES} WHERE {p}",
                    f"SELECT s.n, c.cost FROM {SALES} {join} {COSTS} ON {on} WHERE {both}",
                    f"SELECT s.n, c.cost FROM {SALES} {join} {COSTS} ON {on} AND {both}",
                    f"SELECT s.n, c.cost FROM {SALES} {join} {COSTS} ON {on} AND {q} WHERE {both}",
                    f"SELECT s.n FROM {SALES} LEFT {random_.choice(['SEMI', 'ANTI'])} JOIN {COSTS} ON {on} AND {both} WHERE {p}",
                    f"SELECT s.n FROM {SALES} WHERE {p} AND {random_.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {COSTS} WHERE {on} AND {q})",
                    f"SELECT x.k, x.n FROM (SELECT s.day AS day, s.store AS k, s.store AS store, SUM(s.n) AS n FROM {SALES} GROUP BY s.day, s.store) x WHERE {x}",
                    f"SELECT x.r, x.n FROM (SELECT s.day AS day, s.store AS store, s.n AS n, ROW_NUMBER() OVER (PARTITION BY {random_.choice(['s.day', 's.store', 's.day, s.store'])} ORDER BY s.n, s.id) AS r FROM {SALES}) x WHERE {x}",
                    f"SELECT x.n FROM (SELECT day, store, n FROM b.sales UNION ALL SELECT CAST(day AS STRING), store, cost FROM b.costs) x WHERE {x}",
                    f"WITH y AS (SELECT * FROM {SALES} WHERE {p}) SELECT a.n, c.cost FROM y a {join} b.costs c ON c.day = a.day WHERE {q}",
                    f"SELECT s.n, c.cost, d.cost AS e FROM {SALES} {join} {COSTS} ON {on} {random_.choice(_JOINS[:4])} b.costs d ON d.store = s.store AND d.day = c.day WHERE {both}",
                ]
            )
        )
    return queries
