CREATE DATASET abc.customer (
  customer_id BIGINT,
  address STRING,
  gender STRING
)
  COMMENT 's3n://abc/def/customer.gz/dt=20151210/'
  STORED IN LAKE
  PARTITIONED BY (dt INT)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2015-12-09', END '2015-12-11')
  INSERT (dt = CAST(DATE_FORMAT(t, 'yyyyMMdd') AS INT))
EXTERNAL;
