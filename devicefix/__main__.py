"""`python -m devicefix` is the same program as `devicefix`."""

import os
import sys

# `-m` puts the current folder on `sys.path`: a file of the checked code could replace a module.
try:
    here = os.getcwd()
except OSError:  # it has been removed, and is not on the path
    here = ""
if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", here):
    del sys.path[0]

from devicefix.cli import main

main(prog_name="python -m devicefix")
