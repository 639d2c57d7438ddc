# ruff: noqa: E501 - queries, one a line
"""Queries in the manner of TPC-H and TPC-DS, over tables with types like theirs; and single expressions."""

TABLES = {
    "tpc.lineitem": {
        "l_orderkey": "bigint", "l_partkey": "bigint", "l_suppkey": "bigint", "l_quantity": "decimal(15,2)",
        "l_extendedprice": "decimal(15,2)", "l_discount": "decimal(15,2)", "l_tax": "decimal(15,2)",
        "l_returnflag": "string", "l_linestatus": "string", "l_shipdate": "date", "l_commitdate": "date",
        "l_receiptdate": "date", "l_shipmode": "string",
    },
    "tpc.orders": {
        "o_orderkey": "bigint", "o_custkey": "bigint", "o_orderstatus": "string", "o_totalprice": "decimal(15,2)",
        "o_orderdate": "date", "o_orderpriority": "string", "o_shippriority": "int", "o_comment": "string",
    },
    "tpc.customer": {"c_custkey": "bigint", "c_name": "string", "c_nationkey": "int", "c_acctbal": "decimal(15,2)",
                     "c_mktsegment": "string", "c_phone": "string"},
    "tpc.nation": {"n_nationkey": "int", "n_name": "string", "n_regionkey": "int"},
    "tpc.store_sales": {
        "ss_sold_date_sk": "int", "ss_item_sk": "int", "ss_customer_sk": "int", "ss_store_sk": "int",
        "ss_quantity": "int", "ss_list_price": "decimal(7,2)", "ss_sales_price": "decimal(7,2)",
        "ss_ext_discount_amt": "decimal(7,2)", "ss_net_profit": "decimal(7,2)", "ss_coupon_amt": "decimal(7,2)",
    },
    "tpc.web_sales": {"ws_sold_date_sk": "int", "ws_item_sk": "int", "ws_quantity": "int",
                      "ws_sales_price": "decimal(7,2)", "ws_net_profit": "decimal(7,2)"},
    "tpc.date_dim": {"d_date_sk": "int", "d_date": "date", "d_year": "int", "d_moy": "int", "d_week_seq": "int",
                     "d_day_name": "string"},
    "tpc.item": {"i_item_sk": "int", "i_item_id": "string", "i_category": "string", "i_class": "string",
                 "i_current_price": "decimal(7,2)", "i_brand_id": "int"},
    "tpc.events": {"at": "timestamp", "small": "smallint", "tiny": "tinyint", "real": "float", "dbl": "double",
                   "flag": "boolean", "words": "array<string>", "wide": "decimal(38,10)", "rate": "decimal(18,4)",
                   "payload": "string", "big": "bigint", "num": "int", "day": "date"},
}  # fmt: skip

QUERIES = """
SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS q, SUM(l_extendedprice) AS p, SUM(l_extendedprice * (1 - l_discount)) AS d, SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS c, AVG(l_quantity) AS aq, AVG(l_extendedprice) AS ap, AVG(l_discount) AS ad, COUNT(*) AS n FROM tpc.lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAYS GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag
SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority FROM tpc.customer, tpc.orders, tpc.lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC LIMIT 10
SELECT o_orderpriority, COUNT(*) AS n FROM tpc.orders WHERE EXISTS (SELECT * FROM tpc.lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority
SELECT n_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM tpc.customer JOIN tpc.orders ON c_custkey = o_custkey JOIN tpc.lineitem ON l_orderkey = o_orderkey JOIN tpc.nation ON c_nationkey = n_nationkey GROUP BY n_name
SELECT SUM(l_extendedprice * l_discount) AS revenue FROM tpc.lineitem WHERE l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01
SELECT y, SUM(v) AS volume FROM (SELECT EXTRACT(YEAR FROM l_shipdate) AS y, l_extendedprice * (1 - l_discount) AS v FROM tpc.lineitem) x GROUP BY y
SELECT y, SUM(CASE WHEN n = 'BRAZIL' THEN v ELSE 0 END) / SUM(v) AS share FROM (SELECT YEAR(o_orderdate) AS y, l_extendedprice * (1 - l_discount) AS v, n_name AS n FROM tpc.orders JOIN tpc.lineitem ON l_orderkey = o_orderkey JOIN tpc.customer ON c_custkey = o_custkey JOIN tpc.nation ON c_nationkey = n_nationkey) a GROUP BY y
SELECT l_shipmode, SUM(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high, SUM(CASE WHEN o_orderpriority <> '1-URGENT' THEN 1 ELSE 0 END) AS low FROM tpc.orders, tpc.lineitem WHERE o_orderkey = l_orderkey GROUP BY l_shipmode
SELECT c_count, COUNT(*) AS dist FROM (SELECT c_custkey, COUNT(o_orderkey) AS c_count FROM tpc.customer LEFT JOIN tpc.orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%' GROUP BY c_custkey) t GROUP BY c_count
SELECT 100.00 * SUM(CASE WHEN l_shipmode LIKE 'A%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / SUM(l_extendedprice * (1 - l_discount)) AS promo FROM tpc.lineitem
WITH revenue AS (SELECT l_suppkey AS supplier, SUM(l_extendedprice * (1 - l_discount)) AS total FROM tpc.lineitem GROUP BY l_suppkey) SELECT supplier, total, total / 7 AS share, total * 1.5 AS more FROM revenue WHERE total = (SELECT MAX(total) FROM revenue)
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly FROM tpc.lineitem WHERE l_quantity < (SELECT 0.2 * AVG(l_quantity) FROM tpc.lineitem)
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, SUM(l_quantity) AS q FROM tpc.customer, tpc.orders, tpc.lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM tpc.lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > 300) AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
SELECT SUBSTRING(c_phone, 1, 2) AS code, COUNT(*) AS n, SUM(c_acctbal) AS total FROM tpc.customer WHERE c_acctbal > (SELECT AVG(c_acctbal) FROM tpc.customer WHERE c_acctbal > 0.00) GROUP BY SUBSTRING(c_phone, 1, 2)
SELECT d_year, i_brand_id AS brand, SUM(ss_sales_price) AS sales FROM tpc.store_sales JOIN tpc.date_dim ON ss_sold_date_sk = d_date_sk JOIN tpc.item ON ss_item_sk = i_item_sk GROUP BY d_year, i_brand_id
WITH w AS (SELECT ws_sold_date_sk AS k, ws_sales_price AS p FROM tpc.web_sales UNION ALL SELECT ss_sold_date_sk, ss_sales_price FROM tpc.store_sales) SELECT d_week_seq, SUM(CASE WHEN d_day_name = 'Sunday' THEN p ELSE NULL END) AS sun, SUM(CASE WHEN d_day_name = 'Monday' THEN p END) AS mon, ROUND(SUM(p) / 3, 2) AS r FROM w JOIN tpc.date_dim ON d_date_sk = k GROUP BY d_week_seq
SELECT i_item_id, AVG(ss_quantity) AS a1, AVG(ss_list_price) AS a2, AVG(ss_coupon_amt) AS a3, AVG(ss_sales_price) AS a4 FROM tpc.store_sales JOIN tpc.item ON ss_item_sk = i_item_sk GROUP BY i_item_id
SELECT i_class, SUM(ss_sales_price) AS revenue, SUM(ss_sales_price) * 100 / SUM(SUM(ss_sales_price)) OVER (PARTITION BY i_class) AS ratio FROM tpc.store_sales JOIN tpc.item ON ss_item_sk = i_item_sk GROUP BY i_class
SELECT i_category, RANK() OVER (PARTITION BY i_category ORDER BY SUM(ss_net_profit) DESC) AS rk, SUM(ss_net_profit) AS p, LAG(SUM(ss_net_profit)) OVER (ORDER BY i_category) AS prev, ROW_NUMBER() OVER (ORDER BY i_category) AS rn FROM tpc.store_sales JOIN tpc.item ON ss_item_sk = i_item_sk GROUP BY i_category
SELECT ss_store_sk, COUNT(DISTINCT ss_customer_sk) AS n, MIN(ss_list_price) AS lo, MAX(ss_list_price) AS hi, STDDEV_SAMP(ss_quantity) AS sd, SUM(ss_quantity) AS q, SUM(DISTINCT ss_quantity) AS dq FROM tpc.store_sales GROUP BY ss_store_sk
SELECT COALESCE(ss_item_sk, ws_item_sk) AS item, COALESCE(ss_net_profit, 0) AS sp, COALESCE(ws_net_profit, 0) AS wp, COALESCE(ss_net_profit, 0) - COALESCE(ws_net_profit, 0) AS diff FROM tpc.store_sales FULL JOIN tpc.web_sales ON ss_item_sk = ws_item_sk
SELECT ss_item_sk, CAST(SUM(ss_quantity) AS DECIMAL(15, 4)) / CAST(COUNT(*) AS DECIMAL(15, 4)) AS ratio, CASE WHEN SUM(ss_quantity) > 0 THEN SUM(ss_net_profit) / SUM(ss_quantity) END AS per, ss_item_sk % 10 AS bucket FROM tpc.store_sales GROUP BY ss_item_sk
SELECT ss_item_sk AS k, ss_net_profit AS p FROM tpc.store_sales UNION SELECT ws_item_sk, ws_net_profit * 2 FROM tpc.web_sales
SELECT ss_item_sk AS k FROM tpc.store_sales INTERSECT SELECT i_brand_id FROM tpc.item EXCEPT SELECT ws_item_sk FROM tpc.web_sales
SELECT num AS k, 'a' AS c, NULL AS nothing FROM tpc.events UNION ALL SELECT big, payload, payload FROM tpc.events UNION ALL SELECT dbl, payload, NULL FROM tpc.events
SELECT day AS d FROM tpc.events UNION ALL SELECT at FROM tpc.events
SELECT * FROM (SELECT d_date, d_year + 1 AS next, d_moy FROM tpc.date_dim) x WHERE next > 2000
SELECT t.*, w.word FROM (SELECT num, words FROM tpc.events) t LATERAL VIEW EXPLODE(words) w AS word
SELECT i_category, i_class, SUM(ss_quantity) AS q FROM tpc.store_sales JOIN tpc.item ON ss_item_sk = i_item_sk GROUP BY ROLLUP (i_category, i_class)
SELECT (SELECT MAX(d_date) FROM tpc.date_dim) AS latest, (SELECT COUNT(*) FROM tpc.item) AS items FROM tpc.nation
""".strip().splitlines()

EXPRESSIONS = """
num + 1 | num + big | num * small | tiny + small | num / 2 | real * 2 | real * real | real + dbl | num DIV 2 | big % 3 | -num | -rate
rate + 1 | rate * rate | rate / rate | rate - num | rate * big | wide * wide | wide + rate | wide / 3 | rate % 7 | rate + 1.25 | 1.5 | 3000000000 | 1e3 | 0.05 | num + 1.5 | rate * dbl | rate + real
SUM(num) | SUM(rate) | SUM(wide) | SUM(real) | SUM(tiny) | AVG(num) | AVG(rate) | AVG(wide) | AVG(dbl) | MIN(at) | MAX(day) | COUNT(num) | COUNT(DISTINCT num, big) | COLLECT_LIST(num) | STDDEV(num) | VARIANCE(rate) | FIRST(payload) | ANY_VALUE(day) | COUNT_IF(flag) | BOOL_OR(flag) | APPROX_COUNT_DISTINCT(num) | CORR(num, dbl) | SUM(DISTINCT rate) | SUM(CASE WHEN flag THEN rate ELSE 0 END) | COUNT(*) FILTER (WHERE flag)
CASE WHEN flag THEN num ELSE big END | CASE WHEN flag THEN rate ELSE num END | CASE WHEN flag THEN 1 ELSE 1.5 END | IF(flag, day, at) | IF(flag, num, NULL) | COALESCE(num, 0) | COALESCE(rate, 0) | COALESCE(dbl, 0) | COALESCE(small, 1) | NULLIF(num, 0) | NVL(payload, 'x') | GREATEST(num, big) | LEAST(rate, wide) | CASE num WHEN 1 THEN 'a' END | COALESCE(payload, NULL)
num > 1 | flag AND num = 2 | payload LIKE 'a%' | payload RLIKE 'x' | num IN (1, 2) | num BETWEEN 1 AND 2 | payload IS NULL | NOT flag | num <=> 1 | ARRAY_CONTAINS(words, 'x')
CAST(num AS STRING) | CAST(payload AS DECIMAL(5, 2)) | CAST(day AS TIMESTAMP) | TRY_CAST(payload AS INT) | payload::DATE | CAST(num AS TINYINT) | CAST(words AS STRING) | CAST(num AS FLOAT)
DATE_SUB(day, 1) | DATE_ADD(at, 1) | ADD_MONTHS(day, 1) | LAST_DAY(day) | DATEDIFF(day, at) | day + 1 | day + INTERVAL 1 DAY | day - INTERVAL 1 MONTH | at + INTERVAL 2 HOURS | day + INTERVAL 3 HOURS | day - day | at - at | TRUNC(day, 'MM') | DATE_TRUNC('DAY', at) | DATE_TRUNC('MONTH', day) | TO_DATE(payload) | TO_TIMESTAMP(payload) | DATE_FORMAT(at, 'yyyy') | UNIX_TIMESTAMP(at) | FROM_UNIXTIME(big) | MAKE_DATE(2020, 1, 1) | NEXT_DAY(day, 'MO') | MONTHS_BETWEEN(day, at) | FROM_UTC_TIMESTAMP(at, 'UTC') | TIMESTAMP_SECONDS(big) | TIMESTAMPDIFF(HOUR, at, at) | TIMESTAMPADD(HOUR, 1, at)
YEAR(day) | MONTH(at) | DAY(day) | HOUR(at) | MINUTE(at) | SECOND(at) | QUARTER(day) | DAYOFWEEK(day) | WEEKDAY(day) | DAYOFYEAR(day) | WEEKOFYEAR(day) | EXTRACT(YEAR FROM at) | EXTRACT(SECOND FROM at) | EXTRACT(DOW FROM day)
EXTRACT(S FROM at) | EXTRACT(SEC FROM at) | EXTRACT(SECS FROM at) | EXTRACT(SECONDS FROM day) | EXTRACT(SEC FROM payload) | EXTRACT(QTR FROM at) | EXTRACT(MON FROM at) | EXTRACT(H FROM at) | EXTRACT(MINS FROM payload) | EXTRACT(M FROM at) | EXTRACT(YEAROFWEEK FROM day) | DATE_PART('SEC', at) | DATEPART('SECS', at)
EXTRACT(DAY FROM at - at) | EXTRACT(HOUR FROM at - at) | EXTRACT(MINUTE FROM at - at) | EXTRACT(SECOND FROM at - at) | EXTRACT(MONTH FROM INTERVAL '1' MONTH) | DATE_PART('HOUR', at - at)
UPPER(payload) | LOWER(payload) | SUBSTR(payload, 1, 2) | LEFT(payload, 2) | CONCAT(payload, num) | payload || num | CONCAT(words, words) | REPLACE(payload, 'a', 'b') | TRIM(payload) | LPAD(payload, 3, '0') | LENGTH(payload) | REVERSE(payload) | REVERSE(words) | REPEAT(payload, 2) | INITCAP(payload) | REGEXP_REPLACE(payload, 'a', 'b') | REGEXP_EXTRACT(payload, 'a', 0) | SPLIT(payload, ',') | SPLIT(payload, ',')[0] | CONCAT_WS('-', payload, payload) | INSTR(payload, 'a') | LOCATE('a', payload) | MD5(payload) | SUBSTRING_INDEX(payload, '-', 1) | STARTSWITH(payload, 'a') | CONTAINS(payload, 'a') | ASCII(payload) | LEVENSHTEIN(payload, 'x')
ROUND(rate, 2) | ROUND(rate) | ROUND(dbl, 2) | ROUND(num) | CEIL(rate) | FLOOR(dbl) | FLOOR(rate) | CEIL(num) | ABS(num) | ABS(rate) | SQRT(num) | EXP(dbl) | LN(dbl) | POW(num, 2) | SIGN(num) | LOG(2, num) | GREATEST(day, at) | MOD(num, 3) | PMOD(num, 3) | HASH(num) | XXHASH64(num)
ARRAY(1, 2) | ARRAY('a') | words[0] | SIZE(words) | MAP('a', 1) | STRUCT(num AS n) | NAMED_STRUCT('a', 1) | EXPLODE(words) | SEQUENCE(1, 3) | TRANSFORM(words, x -> UPPER(x)) | FILTER(words, x -> x = 'a') | SORT_ARRAY(words) | FLATTEN(ARRAY(words)) | MAX_BY(num, big) | PERCENTILE(num, 0.5) | FROM_JSON(payload, 'a INT') | my_udf(num) | RANDN() | UUID()
CARDINALITY(words) | COLLECT_SET(payload) | TO_JSON(NAMED_STRUCT('a', num)) | GET_JSON_OBJECT(payload, '$.a') | NAMED_STRUCT('a', num, 'b', payload) | STRUCT(num, payload) | STRUCT(num AS n, rate AS r) | STRUCT(num + 1) | MAP('a', num) | MAP('a', num, 'b', big) | ARRAY_DISTINCT(words) | ARRAY_SORT(words) | ARRAY_JOIN(words, ',') | ARRAY_MAX(words) | ARRAY_MIN(ARRAY(num, big)) | ARRAY_SIZE(words) | ARRAY_POSITION(words, 'a') | ARRAY_UNION(words, words) | ARRAY_UNION(ARRAY(num), ARRAY(big)) | ARRAY_EXCEPT(words, words) | ARRAY_INTERSECT(words, words) | ARRAY_APPEND(words, 'a') | ARRAY_APPEND(ARRAY(num), big) | SLICE(words, 1, 2) | MAP_KEYS(MAP('a', num)) | MAP_VALUES(MAP('a', num)) | MAP_ENTRIES(MAP('a', num)) | MAP_CONTAINS_KEY(MAP('a', num), 'a') | MAP('a', num)['a'] | NAMED_STRUCT('a', num).a | STR_TO_MAP(payload) | FORALL(words, x -> x = 'a') | EXISTS(words, x -> x = 'a') | SEQUENCE(num, num) | SEQUENCE(day, day) | SEQUENCE(num, big) | ARRAYS_ZIP(words, words) | ELEMENT_AT(words, 1)
SHA2(payload, 256) | SHA1(payload) | SHA(payload) | CRC32(payload) | TRANSLATE(payload, 'a', 'b') | FORMAT_NUMBER(rate, 2) | FORMAT_STRING('%s', payload) | PRINTF('%s', payload) | SOUNDEX(payload) | HEX(num) | HEX(payload) | UNHEX(payload) | BASE64(UNHEX(payload)) | UNBASE64(payload) | ENCODE(payload, 'utf-8') | DECODE(UNHEX(payload), 'utf-8') | OCTET_LENGTH(payload) | BIT_LENGTH(payload) | CHAR_LENGTH(payload) | CHR(65) | SPLIT_PART(payload, ',', 1) | TYPEOF(num) | VERSION() | URL_ENCODE(payload) | PARSE_URL(payload, 'HOST') | JSON_ARRAY_LENGTH(payload) | SCHEMA_OF_JSON('{"a": 1}') | FROM_JSON(payload, 'a INT, b ARRAY<STRING>') | CURRENT_TIMEZONE() | SESSION_USER() | CONV(payload, 10, 16) | BIN(num) | FIND_IN_SET('a', payload) | SPACE(2) | INPUT_FILE_NAME() | SPARK_PARTITION_ID() | LISTAGG(payload, ',') | STRING_AGG(payload, ',') | X'00'
SIGN(rate) | SIGNUM(dbl) | SIN(num) | ATAN2(num, dbl) | LOG10(num) | LOG2(rate) | LOG(dbl) | CBRT(num) | DEGREES(dbl) | RADIANS(num) | PI() | E() | HYPOT(num, num) | RINT(dbl) | FACTORIAL(5) | WIDTH_BUCKET(dbl, 0, 1, 5) | num & 1 | num & big | num ^ small | ~num | tiny | BIT_AND(num) | TRY_DIVIDE(num, 2) | TRY_DIVIDE(rate, 2) | TRY_ADD(num, 1) | NVL2(num, 1, 2.5) | MAX_BY(payload, num) | MIN_BY(rate, num) | PERCENTILE_APPROX(num, 0.5) | PERCENTILE_APPROX(rate, ARRAY(0.5, 0.9)) | PERCENTILE(num, ARRAY(0.5)) | PERCENTILE(rate, 0.5) | MEDIAN(num) | MEDIAN(rate) | MODE(payload) | MEAN(num) | SKEWNESS(dbl) | KURTOSIS(num) | REGR_SLOPE(dbl, dbl) | EVERY(flag) | SOME(flag) | ANY(flag)
ISNULL(num) | ISNOTNULL(num) | ISNAN(dbl) | EQUAL_NULL(num, big) | UNIX_SECONDS(at) | UNIX_MILLIS(at) | UNIX_MICROS(at) | UNIX_DATE(day) | DATE_FROM_UNIX_DATE(num) | TIMESTAMP_MILLIS(big) | TIMESTAMP_MICROS(big) | WINDOW(at, '1 hour') | DATE_PART('YEAR', day) | MAKE_TIMESTAMP(2020, 1, 1, 1, 1, 1) | CONVERT_TIMEZONE('UTC', 'UTC', at) | day - day | BIGINT(payload) | INT(payload) | DECODE(num, 1, 'a', 'b')
ROW_NUMBER() OVER (ORDER BY num) | RANK() OVER (ORDER BY num) | NTILE(4) OVER (ORDER BY num) | PERCENT_RANK() OVER (ORDER BY num) | LAG(rate) OVER (ORDER BY num) | SUM(rate) OVER (PARTITION BY num) | AVG(num) OVER (PARTITION BY big) | FIRST_VALUE(day) OVER (ORDER BY num) | COUNT(*) OVER () | MAX(at) OVER (ORDER BY num) | LEAD(num, 1, 0) OVER (ORDER BY num)
num + payload | payload > 3 | COALESCE(payload, num) | CASE WHEN flag THEN payload ELSE day END | SUM(payload) | AVG(payload) | day = payload | NULL | TRUE | 'x' | CURRENT_DATE() | NOW() | num & 1 | num << 2 | ~num
""".strip()
