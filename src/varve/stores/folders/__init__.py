"""Batch folders of parquet files, which the lake shows to readers and from which the warehouse loads."""
