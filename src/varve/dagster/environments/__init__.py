"""Work within an environment: what arrives there, its runs, and the rows of earlier generations."""
