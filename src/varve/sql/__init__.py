"""A SQL file -> a compiled dataset: header, scopes, schema, dependencies and the query that computes it."""
