CREATE DATASET varve_live.orders (
  order_id BIGINT COMMENT 'a number of the shop''s own',
  product STRING COMMENT 'what was ordered',
  cents BIGINT COMMENT 'what it costs'
)
  COMMENT 'Orders as each shop sends them: the file of an hour is sent again as the hour grows.'
  STORED IN LAKE
  PARTITIONED BY (hour STRING, shop STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 HOUR, START '2026-01-01', RETENTION 2 DAYS),
    seller IN ('Berlin', 'Lagos', 'Osaka')
  LET of_hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
  INSERT (hour = of_hour, shop = seller)
EXTERNAL OPTIONS (source = 'landing');
