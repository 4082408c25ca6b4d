"""Serve findings and fixes to editors and to flake8."""
