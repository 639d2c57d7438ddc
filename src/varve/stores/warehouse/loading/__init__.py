"""Loads rows into period tables by COPY, and explains errors by row."""
