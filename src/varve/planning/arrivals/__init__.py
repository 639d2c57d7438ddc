"""What to do with files that arrive, and with those of partitions that grow."""
