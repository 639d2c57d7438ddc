"""Change events out of a source: slots, snapshots, change files, and the durable batches they go to."""
