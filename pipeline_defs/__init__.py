"""Varve's Dagster surface, one module per Dagster concept, over pure values (model) and pure planning (planning)."""
