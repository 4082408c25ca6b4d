"""What no checker can beat: read every Python file below a folder, and parse it if asked to.

python benchmarks/limits.py read|parse DIR
"""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
for path in Path(sys.argv[2]).rglob("*.py"):
    data = path.read_bytes()
    if sys.argv[1] == "parse":
        with contextlib.suppress(SyntaxError, ValueError):
            ast.parse(data)
