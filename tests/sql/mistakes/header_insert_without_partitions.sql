CREATE DATASET shop.out
  INSERT (day = today)
AS SELECT 1 AS x;
