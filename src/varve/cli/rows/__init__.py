"""The commands that show rows: of a partition before it is run, and of what differs between two states of a dataset."""
