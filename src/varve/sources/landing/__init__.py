"""The landing folder: files as partners send them, read into typed rows or refused by line."""
