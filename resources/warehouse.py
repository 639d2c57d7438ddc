"""The warehouse: in PostgreSQL one period table for each partition, and one union view over all of them.

A rerun drops and recreates the table of its period, though never under a reader: the new table is created and loaded
beside the old one, under a name of its own; when it is complete, one transaction replaces the union view and moves the
catalog's pointers; the sweep drops the old table (docs/decisions/0003).
"""

from varve.dagster.runs.io_manager import store_io_manager

warehouse_io_manager = store_io_manager(
    "Loads each partition into a new period table, verifies it, and rebuilds the union view in one transaction."
)
