"""A test from real rows: a few that matter and join, masked where that is asked, and what the dataset makes of them."""
