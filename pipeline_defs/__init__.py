"""This project's Dagster definitions. definitions.py merges sensors.py, schedules.py, jobs.py and what resources/ has.

Not here: the datasets (assets/), how they are loaded and run (the library, src/varve), the demos' data (demo/).
"""
