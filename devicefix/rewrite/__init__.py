"""Apply fixes with one LibCST transformer, and prove that nothing else changed."""
