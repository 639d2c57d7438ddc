CREATE DATASET bigdataflow.receipts (
  product_id BIGINT COMMENT 'what was sold',
  price DOUBLE COMMENT 'euros'
)
  COMMENT 'One row per product on a receipt, as the tills dump them.'
  PARTITIONED BY (day STRING, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-30', END '2022-04-01'), store IN ('Detroit', 'Paris')
  LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
EXTERNAL OPTIONS (source = 'table', table = 'kafka_dumps.receipts');
