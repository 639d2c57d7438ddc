CREATE DATASET shop.out (id INT, Batch_Id BIGINT)
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT id, 1 AS batch_id
FROM shop.sales
WHERE sales.day = today;
