"""The commands over the batches that there are: what was current, what it was made from, taking back, deleting."""
