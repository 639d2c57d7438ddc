"""The SQL files of a project together: as parsed, and in the end, those that are usable and why others are not."""
