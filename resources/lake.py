"""The lake: a folder of parquet for each batch of a partition, and a Hive table that points at the current ones.

A rerun writes a new folder beside the old one, compares rows and partitions with what was asked for, and publishes:
one transaction moves the catalog's pointers, and the Hive table follows. Nobody edits or reuses a folder; the sweep
removes old ones (docs/decisions/0004).
"""

from varve.dagster.runs.io_manager import store_io_manager

lake_io_manager = store_io_manager("Writes each partition as a new folder of parquet, verifies it, and publishes it.")
