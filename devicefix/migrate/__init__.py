"""Migrate a program: rewrite it, keep what its runs prove, and list what is left."""
