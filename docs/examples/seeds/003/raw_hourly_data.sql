CREATE DATASET aip76.raw_hourly_data (reading DOUBLE)
  COMMENT '@asset(schedule="@hourly", partition=PartitionByInterval("@hourly"))'
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(CRON '@hourly', START '2024-01-01')
  INSERT (hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm"))
EXTERNAL;
