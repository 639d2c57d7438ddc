"""All that knows Dagster: assets, IO manager, builds, sensors, schedules, mappings, report."""
