CREATE DATASET bigdataflow.stores_sales
  COMMENT 'The for-comprehension defines a list of scopes.'
  OWNER 'team:stores'
  PARTITIONED BY (day STRING, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01'), shop IN ('Detroit', 'Paris')
  LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = partition_day, store = shop)
AS
SELECT product_id, COUNT(*) AS nb_sales, SUM(price) AS revenue
FROM bigdataflow.receipts
WHERE receipts.day = partition_day AND receipts.store = shop
GROUP BY product_id;
