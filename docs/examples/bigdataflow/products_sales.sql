CREATE DATASET bigdataflow.products_sales (
  product_id BIGINT COMMENT 'what was sold',
  nb_sales BIGINT COMMENT 'pieces',
  revenue DOUBLE COMMENT 'euros'
)
  COMMENT 'Sales of each product over all stores'
  STORED IN LAKE
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01', RETENTION 30 DAYS)
  LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = partition_day)
  ON UPSTREAM CHANGE REBUILD
  EXPECT revenue_positive: revenue >= 0
AS
SELECT product_id, SUM(nb_sales) AS nb_sales, SUM(revenue) AS revenue
FROM bigdataflow.stores_sales
WHERE stores_sales.day = partition_day
GROUP BY product_id;
