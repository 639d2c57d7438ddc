CREATE DATASET aip76.hourly_data
  COMMENT '@asset(schedule=raw_hourly_data, partition=PartitionByInterval("@hourly"))'
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(CRON '@hourly', START '2024-01-01')
  INSERT (hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm"))
AS
SELECT reading
FROM aip76.raw_hourly_data r
WHERE r.hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm");
