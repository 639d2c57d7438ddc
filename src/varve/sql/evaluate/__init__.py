"""Spark's functions over columns of scopes and keys, evaluated before a run with Spark's meaning."""
