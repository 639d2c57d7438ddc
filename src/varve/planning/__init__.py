"""What should exist against what does: mapping, arrivals and triggers. Pure functions; no I/O, no Dagster."""
