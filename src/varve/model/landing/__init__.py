"""What partners send: file patterns and the options of their formats."""
