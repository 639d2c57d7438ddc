"""`varve demo --live`: files of the current hour, the real daemon, and a reader whose answers are checked."""
