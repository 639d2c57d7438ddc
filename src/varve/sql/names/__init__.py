"""What a name in a query means, and the query as its author wrote it with a run's values at their places."""
