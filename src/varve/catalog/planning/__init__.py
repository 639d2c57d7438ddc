"""The planner's queries of the catalog, for many partitions at once."""
