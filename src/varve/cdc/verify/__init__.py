"""Comparing a captured dataset with its source, at one LSN of the source's log."""
