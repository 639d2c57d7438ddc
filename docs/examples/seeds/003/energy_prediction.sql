CREATE DATASET aip76.energy_prediction
  COMMENT '@asset(schedule=energy_consumption_model, partition=active_customers)'
  PARTITIONED BY (customer STRING)
  FOR c IN DYNAMIC 'active_customers'
  INSERT (customer = c)
AS
SELECT kwh * 1.1 AS kwh
FROM aip76.energy_consumption_model m
WHERE m.customer = c;
