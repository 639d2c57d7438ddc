CREATE DATASET aip76.dwh_daily_cloud_spend (cost DOUBLE)
  COMMENT '@asset(schedule="@daily", partition=PartitionBySequence(["marketing-dwh", "engineering-dwh"]))'
  PARTITIONED BY (dwh STRING)
  FOR dwh IN ('marketing-dwh', 'engineering-dwh')
EXTERNAL;
