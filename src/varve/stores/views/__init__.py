"""Batches that are the files of others, of which nothing is copied."""
