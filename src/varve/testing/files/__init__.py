"""Files of tests, `*.test.yaml`: found, read, and what is wrong with them told with its line."""
