"""PostgreSQL tables that say which batch of each partition is current, and what was before: the only truth."""
