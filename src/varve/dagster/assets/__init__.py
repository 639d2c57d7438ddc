"""Datasets as Dagster assets: of SQL files, of Python functions, of captures, and those that are broken."""
