"""Take one file from bytes to result: kind, prefilter, facts, rules, fixes, self-check."""
