"""Capture of change events: replication slots, snapshots, change files, and the durable batches of events."""
