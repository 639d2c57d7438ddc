CREATE DATASET aip76.data_using_slow_data
  COMMENT '@asset(schedule=yearly_data, partition=PartitionByInterval("@monthly"))'
  PARTITIONED BY (month STRING)
  FOR t IN TIMESERIES(CRON '@monthly', START '2022-01-01')
  INSERT (month = DATE_FORMAT(t, 'yyyy-MM'))
AS
SELECT reading
FROM aip76.yearly_data y
WHERE y.of_year = DATE_FORMAT(t, 'yyyy');
