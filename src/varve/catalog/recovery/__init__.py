"""A lost catalog, made anew from what the stores can tell."""
