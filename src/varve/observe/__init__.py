"""What others see of the pipeline from outside: costs, metrics, lineage events and structured logs.

All of it is read from the catalog or told by a run; nothing here changes what is current, and nothing here fails a run.
"""
