"""A SQL file -> a dataset: header, scopes, schema, dependencies and the query that computes it (DESIGN section 7)."""
