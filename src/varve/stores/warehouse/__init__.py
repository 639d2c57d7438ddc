"""The warehouse store: one period table for each partition, under one union view in PostgreSQL."""
