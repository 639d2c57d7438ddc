CREATE DATASET aip76.hourly_data_shifted
  COMMENT '@asset(schedule=raw_hourly_data, partition=PartitionByInterval("30 * * * *"))'
  PARTITIONED BY (half STRING)
  FOR t IN TIMESERIES(CRON '30 * * * *', START '2024-01-01T00:30')
  INSERT (half = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm"))
AS
SELECT reading
FROM aip76.raw_hourly_data r
WHERE r.hour BETWEEN DATE_FORMAT(DATE_TRUNC('HOUR', t), "yyyy-MM-dd'T'HH:mm")
  AND DATE_FORMAT(DATE_TRUNC('HOUR', t_end), "yyyy-MM-dd'T'HH:mm");
