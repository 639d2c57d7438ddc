CREATE DATASET bigdataflow.receipts (
  product_id BIGINT,
  store STRING,
  price DOUBLE
)
  COMMENT 'Kafka topics dumped as hourly partitioned Hive tables; views towards these external datasets use EXTERNAL.'
  PARTITIONED BY (day STRING, hour STRING)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2022-03-01', END '2022-04-01')
  INSERT (day = DATE_FORMAT(t, 'yyyy-MM-dd'), hour = DATE_FORMAT(t, 'HH'))
EXTERNAL VIEW OPTIONS (source = 'table', table = 'kafka_dumps.receipts');
