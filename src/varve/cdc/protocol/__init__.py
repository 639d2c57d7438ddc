"""Change data capture (docs/decisions/0010): events, their order, their formats, what a schema change allows.

Not here: connections, files and Spark (varve/cdc/capture).
"""
