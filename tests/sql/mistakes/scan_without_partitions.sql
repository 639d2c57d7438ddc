CREATE DATASET shop.out
  LET least = 3
AS SELECT id FROM shop.sales WHERE price > least;
