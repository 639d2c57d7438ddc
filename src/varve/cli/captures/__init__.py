"""`varve cdc`: captured tables, for people."""
