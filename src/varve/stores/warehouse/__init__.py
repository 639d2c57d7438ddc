"""The warehouse store: one period table per partition under one union view in PostgreSQL (seed 000)."""
