CREATE DATASET aip76.aggregated_daily_data
  COMMENT '@asset(schedule=hourly_data, partition=PartitionByInterval("@daily"))'
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(CRON '@daily', START '2024-01-01')
  LET day = CAST(t AS DATE)
AS
SELECT SUM(reading) AS reading
FROM aip76.hourly_data h
WHERE SUBSTRING(h.hour, 1, 10) = CAST(day AS STRING);
