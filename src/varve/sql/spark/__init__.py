"""Queries on Spark: analysis, many scopes in one job, and Spark's refusals at their place in the file."""
