"""Rerun any partition, any time, and no reader notices."""
