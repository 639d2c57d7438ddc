"""Change data capture: from the log of the source to durable batches of events, and from these to dataset batches."""
