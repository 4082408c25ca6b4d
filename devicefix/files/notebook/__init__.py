"""Jupyter notebooks: their cells as one module, and back."""
