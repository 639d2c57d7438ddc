CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT id, 1 AS `a``b`
FROM shop.sales
WHERE sales.day = today;
