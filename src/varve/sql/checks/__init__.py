"""What is wrong with a file beyond its syntax, and what a change of it breaks in others."""
