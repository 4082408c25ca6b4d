"""Apply edits, with LibCST where code changes, and prove that nothing else changed."""
