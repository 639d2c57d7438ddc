"""Tests of files, run: bound to their datasets, computed as a run computes them, and compared."""
