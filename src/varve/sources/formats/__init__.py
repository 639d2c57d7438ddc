"""Reading landing files into Arrow: every value is read exactly, or refused with its line and column.

The whole package is sent to Spark's Python workers by value: nothing of Varve need be installed there, only pyarrow and
fsspec, and fastavro where files are Avro.
"""
