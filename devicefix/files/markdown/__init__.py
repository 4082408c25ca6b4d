"""Blocks of Python in Markdown and reStructuredText: each a module, and back."""
