"""Tables that others write: which partitions they have, when one was changed, and their rows."""
