"""Change events to the rows of a dataset, in Spark."""
