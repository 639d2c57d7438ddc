CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01')
  LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT s.id,
  s.product,
  p.Product
FROM shop.sales s JOIN shop.sales p ON s.id = p.id AND s.day = p.day
WHERE s.day = today;
