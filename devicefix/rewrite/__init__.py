"""Apply edits (with LibCST if statements move), and prove that nothing else changed."""
