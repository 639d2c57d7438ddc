"""Rows into period tables: COPY from Spark's tasks, with errors by row."""
