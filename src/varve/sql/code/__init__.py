"""The code of a dataset: what it names outside of its file, and the version of all that determines its rows."""
