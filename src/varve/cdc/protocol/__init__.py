"""The formats in which changes arrive (pgoutput, wal2json, Debezium), decoded into events, and the order of events.

Not here: connections and files (varve/cdc/capture) and Spark (varve/cdc/resolve).
"""
