CREATE DATASET shop.out
  PARTITIONED BY (day STRING)
  FOR store IN ()
  LET today = DATE_FORMAT(store, 'yyyy-MM-dd')
  INSERT (day = today)
AS
SELECT id FROM shop.sales
WHERE sales.day = today;
