"""What people on call see and are told of: states over time, conditions, freshness, quiet hours, messages; all pure."""
