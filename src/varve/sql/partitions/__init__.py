"""From conditions to partitions: scopes, the keys that they read, and dependencies between datasets."""
