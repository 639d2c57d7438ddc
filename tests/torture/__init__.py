"""A torture that keeps running: random programs over everything at once, of which one seed replays one history."""
