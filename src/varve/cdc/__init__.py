"""Change data capture at work: the source's log into durable batches of events, and those into batches of a dataset."""
