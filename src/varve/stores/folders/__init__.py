"""Batch folders of parquet files, which the lake shows readers and the warehouse loads from."""
