"""The lake store: batch folders of plain parquet under each partition (seed 002), and a Hive table that follows."""
