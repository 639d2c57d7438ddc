CREATE DATASET bigdataflow.recent_sales
  COMMENT 'TIMESERIES produces the timestamps of two days, whichever day it is.'
  OWNER 'team:products'
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, LAST 2 DAYS)
  LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = partition_day)
  ALLOW FULL SCAN
AS
SELECT product_id, revenue
FROM bigdataflow.products_sales;
