"""The builds of a run: how each begins, which are open, how they end, and whom that is told."""
