"""The Spark types of expressions and queries, where they are certain before a run; and the lineage of columns."""
