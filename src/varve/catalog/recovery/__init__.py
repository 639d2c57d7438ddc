"""A lost catalog, rebuilt from its stores."""
