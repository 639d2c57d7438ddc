"""This project's Dagster resources and IO managers, configured, a module for each; and the demo's partner.

Not here: what they do (the library, src/varve).
"""
