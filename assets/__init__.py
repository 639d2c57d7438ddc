"""The datasets of this project. They declare and compute; pipeline_defs/definitions.py is what loads them."""
