"""`python -m devicefix` is the same program as `devicefix`."""

import os
import sys

# `-m` lets modules be imported from the current folder, which is what is looked at.
if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from devicefix.cli import main

main(prog_name="python -m devicefix")
