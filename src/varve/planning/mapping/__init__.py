"""Which partitions of one dataset read which of another, exactly and in both directions."""
