"""Find, read and write files, and extract the modules in notebooks and documentation."""
