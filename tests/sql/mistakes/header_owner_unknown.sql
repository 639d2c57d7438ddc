CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  COMMENT 'a'
  OWNER 'shops'
  INSERT (day = today)
AS
SELECT id FROM shop.sales
WHERE sales.day = today;
