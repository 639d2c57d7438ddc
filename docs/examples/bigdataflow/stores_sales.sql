CREATE DATASET bigdataflow.stores_sales (
  product_id BIGINT COMMENT 'what was sold',
  nb_sales BIGINT COMMENT 'pieces',
  revenue DOUBLE COMMENT 'euros'
)
  COMMENT 'Sales of each product in a store'
  PARTITIONED BY (day STRING, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01'), shop IN ('Detroit', 'Paris')
  LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = partition_day, store = shop)
AS
SELECT product_id, COUNT(*) AS nb_sales, SUM(price) AS revenue
FROM bigdataflow.receipts
WHERE receipts.day = partition_day AND receipts.store = shop
GROUP BY product_id;
