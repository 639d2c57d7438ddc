CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  COMMENT 'a'
  TAGS (tier = 'gold and blue')
  INSERT (day = today)
AS
SELECT id FROM shop.sales
WHERE sales.day = today;
