"""Runs that live: their leases, and the locks of the partitions that they build."""
