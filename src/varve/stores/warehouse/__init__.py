"""The warehouse store: one period table per partition under one union view in PostgreSQL (docs/decisions/0003)."""
