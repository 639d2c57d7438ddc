"""The datasets of this project. They declare and compute; nothing but `pipeline_defs/definitions.py` imports them."""
