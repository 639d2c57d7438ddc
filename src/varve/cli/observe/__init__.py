"""The commands that show what the pipeline does and has cost: costs, metrics, logs."""
