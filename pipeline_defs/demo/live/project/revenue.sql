CREATE DATASET varve_live.revenue
  COMMENT 'One row per product: what a shop sold in an hour, while the hour is still going on.'
  STORED IN WAREHOUSE
  PARTITIONED BY (hour STRING, shop STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-01-01', RETENTION 2 DAYS),
    seller IN ('Berlin', 'Lagos', 'Osaka')
  LET of_hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
  INSERT (hour = of_hour, shop = seller)
  OPEN WINDOWS
AS
SELECT product, COUNT(*) AS orders, SUM(cents) AS cents
FROM varve_live.orders
WHERE orders.hour = of_hour AND orders.shop = seller
GROUP BY product;
