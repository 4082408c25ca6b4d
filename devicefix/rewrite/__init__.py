"""Apply fixes with one LibCST transformer, and check that nothing else has changed."""
