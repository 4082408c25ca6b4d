"""Apply edits, with LibCST where statements move, and prove that nothing else changed."""
