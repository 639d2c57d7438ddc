"""A SQL file -> a dataset: its header, scopes, schema, dependencies and the query that computes it (DESIGN section 7)."""
