"""Reading what landed: a partner's files into Arrow, every value exactly or refused by its line and column.

All but `listing` is sent to Spark's Python workers by value: nothing of Varve need be installed there, only pyarrow and
fsspec, and fastavro where files are Avro.
"""
