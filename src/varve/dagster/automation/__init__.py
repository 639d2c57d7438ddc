"""Sensors, schedules, checks and the report: what asks for runs, and what tells of their state."""
