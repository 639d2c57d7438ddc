CREATE DATASET shop.revenue
  COMMENT 'One row per product: what was sold in an hour.'
  STORED IN WAREHOUSE
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-01-01')
  LET of_hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
  INSERT (hour = of_hour)
AS
SELECT product, COUNT(*) AS orders, SUM(amount) AS revenue
FROM shop.orders
WHERE orders.hour = of_hour
GROUP BY product;
