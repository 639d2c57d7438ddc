CREATE DATASET shop.orders (
  order_id BIGINT,
  product STRING,
  amount DOUBLE
)
  COMMENT 'Orders as the shop sends them, a file per hour.'
  STORED IN LAKE
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-01-01')
  LET hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
EXTERNAL OPTIONS (source = 'landing');
