CREATE DATASET bigdataflow.products_sales
  COMMENT 'INSERT "2022-03-31" as day SELECT ...'
  OWNER 'team:products'
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-04-01')
  LET partition_day = DATE_FORMAT(t, "yyyy-MM-dd")
  INSERT (day = partition_day)
AS
SELECT product_id,
SUM(nb_sales) AS nb_sales,
SUM(revenue) AS revenue
FROM bigdataflow.stores_sales
WHERE stores_sales.day = partition_day
GROUP BY product_id;
