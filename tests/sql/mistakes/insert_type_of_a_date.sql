CREATE DATASET shop.out
  PARTITIONED BY (day INT)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
SELECT id FROM shop.sales
WHERE sales.day = today;
