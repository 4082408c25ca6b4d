"""Process one file from its bytes to the result: kind, prefilter, facts, rules, fixes, self-check."""
