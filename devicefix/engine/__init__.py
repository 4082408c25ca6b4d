"""Process one file: prefilter it, collect facts, call rules, apply fixes, and check the result."""
