"""The lake store: batch folders of plain parquet under each partition, and a Hive table that follows."""
