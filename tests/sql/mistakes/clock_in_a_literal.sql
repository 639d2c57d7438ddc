CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT id, DATEDIFF(DATE 'today', sales.day) AS age, CAST(' Now' AS TIMESTAMP) AS seen, DATE '2022-03-01' AS first
FROM shop.sales
WHERE sales.day = today AND TO_DATE('tomorrow') > sales.day;
