"""The parts of `benchmarks/fuzz.py`: a surface a module, and what they share."""
