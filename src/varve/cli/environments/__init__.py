"""The commands over environments: `varve env ...` and `varve promote`."""
