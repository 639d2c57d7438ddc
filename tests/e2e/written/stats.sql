CREATE DATASET written.stats (name STRING, sum STRING, quarter DOUBLE, his BIGINT)
  COMMENT 'Forms that a query which is written anew from a tree gives other values'
  PARTITIONED BY (store STRING)
  FOR shop IN ('L''Aquila', "O'Brien")
  INSERT (store = shop)
AS
SELECT 'O''Brien' AS name, TO_CHAR(SUM(price), 'S99999') AS sum,
  PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY price DESC) AS quarter, COUNT_IF(product = 'O''Brien') AS his
FROM written.prices WHERE prices.store = shop;
