"""Migrate a program: rewrite it, keep the fixes that its runs prove, and list the remaining findings."""
