"""The commands over the SQL files of a project: check, fmt, graph."""
