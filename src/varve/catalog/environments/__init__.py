"""Environments: a place to try a change, over batches that are never copied (docs/environments.md)."""
