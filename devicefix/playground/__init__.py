"""Serve a web page where you can try devicefix."""
