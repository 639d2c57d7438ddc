"""What a change of a project changes: two versions of its datasets compared as values, by columns and their readers."""
