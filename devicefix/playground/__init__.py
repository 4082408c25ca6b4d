"""Serve a page to try devicefix in a browser."""
