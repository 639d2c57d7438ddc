CREATE DATASET aip76.energy_consumption_model
  COMMENT 'active_customers = PartitionAtRuntime(name="active_customers")'
  PARTITIONED BY (customer STRING)
  FOR c IN DYNAMIC 'active_customers' FROM (SELECT DISTINCT customer FROM aip76.customers)
  INSERT (customer = c)
AS
SELECT AVG(kwh) AS kwh
FROM aip76.customers s
WHERE s.customer = c;
