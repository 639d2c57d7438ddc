"""What a run reads: the pinned batches of a build, and the rows for assets, checks and ops that are no datasets."""
