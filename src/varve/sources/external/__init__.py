"""External tables, which others write: their partitions, detecting changes of them, and their rows."""
