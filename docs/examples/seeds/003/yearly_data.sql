CREATE DATASET aip76.yearly_data (reading DOUBLE)
  COMMENT '@asset(schedule="@yearly", partition=PartitionByInterval("@yearly"))'
  PARTITIONED BY (of_year STRING)
  FOR t IN TIMESERIES(CRON '@yearly', START '2022-01-01')
  INSERT (of_year = DATE_FORMAT(t, 'yyyy'))
EXTERNAL;
