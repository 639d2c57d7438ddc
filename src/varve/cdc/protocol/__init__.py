"""Change data capture (seed 004): events and their order, the formats they come in, and what a schema change allows.

Not here: connections, files and Spark (resources/cdc).
"""
