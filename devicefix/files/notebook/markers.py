"""The function names that mark cell ends and IPython commands in a notebook's module."""

CELL_END = "__cell_"
MAGIC = "__magic_"
INSTALLS = "installs"  # the argument of a command that installs packages
