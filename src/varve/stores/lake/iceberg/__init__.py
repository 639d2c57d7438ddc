"""The lake's tables as Iceberg tables: metadata over the same files, and pointers that move with a publish."""
