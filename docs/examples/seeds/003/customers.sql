CREATE DATASET aip76.customers (
  customer STRING,
  kwh DOUBLE
)
  COMMENT 'customers = ... # get customer list'
EXTERNAL;
