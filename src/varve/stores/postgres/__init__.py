"""PostgreSQL's types and rows for Spark: what the warehouse and tables of others both need."""
