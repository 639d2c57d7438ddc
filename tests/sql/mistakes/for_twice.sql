CREATE DATASET shop.out
  PARTITIONED BY (day STRING, store STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  FOR store IN ('Detroit', 'Paris')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today, store = store)
AS
SELECT id FROM shop.sales
WHERE sales.day = today;
