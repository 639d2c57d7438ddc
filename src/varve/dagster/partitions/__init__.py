"""Dimensions and dependencies as Dagster's partitions definitions and mappings."""
