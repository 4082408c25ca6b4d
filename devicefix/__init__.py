"""Find code tied to CUDA in PyTorch programs, and rewrite it to run on any device."""

__version__ = "0.1.0"
