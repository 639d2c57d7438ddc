"""The vocabulary: frozen values and functions on them. No I/O, no Dagster, no Spark."""
