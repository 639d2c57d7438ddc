"""What the planner asks the catalog, in bulk."""
