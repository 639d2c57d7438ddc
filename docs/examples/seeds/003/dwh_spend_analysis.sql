CREATE DATASET aip76.dwh_spend_analysis
  COMMENT 'PartitionByProduct([PartitionByInterval("@hourly"), PartitionBySequence(["marketing-dwh", "engineering-dwh"])])'
  PARTITIONED BY (hour STRING, dwh STRING)
  FOR t IN TIMESERIES(CRON '@hourly', START '2024-01-01'), house IN ('marketing-dwh', 'engineering-dwh')
  INSERT (hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH:mm"), dwh = house)
AS
SELECT cost
FROM aip76.dwh_daily_cloud_spend s
WHERE s.dwh = house;
