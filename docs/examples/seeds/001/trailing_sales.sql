CREATE DATASET bigdataflow.trailing_sales
  COMMENT 'WHERE filters can be more complex than this.'
  OWNER 'team:finance'
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-04-01', RETENTION 30 DAYS)
  LET partition_day = DATE_FORMAT(t, "yyyy-MM-dd")
  INSERT (day = partition_day)
AS
SELECT product_id, SUM(revenue) AS revenue
FROM bigdataflow.products_sales
WHERE products_sales.day BETWEEN DATE_SUB(partition_day, 3) AND partition_day
GROUP BY product_id;
