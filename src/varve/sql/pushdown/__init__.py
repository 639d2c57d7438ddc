"""Which conditions the rows of each scan must satisfy to matter: FROM, WHERE and JOIN, weakened where unsure."""
