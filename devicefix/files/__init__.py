"""Find, read and write files, and extract modules from notebooks and documentation."""
