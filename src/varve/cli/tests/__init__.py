"""`varve test`: tests of datasets that are files, run and written."""
