"""The `varve` command: typer for the words, rich for the looks, exit code 0 / 1 (yours to mend) / 2 (ours)."""
