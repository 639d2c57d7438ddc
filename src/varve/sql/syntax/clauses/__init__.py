"""The contents of the clauses of a header, one parser each. Which clauses there are says header.py."""
