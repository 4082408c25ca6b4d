"""Serve findings and fixes to editors, and findings to flake8."""
