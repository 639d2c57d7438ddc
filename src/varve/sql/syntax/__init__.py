"""The text of a SQL file: tokens, header clauses, and what is wrong with it at which place."""
