"""Measure what no checker can beat: read every Python file below a folder, and parse it if asked to.

python benchmarks/limits.py read|parse|libcst DIR

With `libcst` only the files that `devicefix rewrite` changes are parsed, by LibCST.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

if sys.argv[1] == "libcst":
    import libcst

    from devicefix.config.resolver import Everywhere
    from devicefix.config.settings import Settings
    from devicefix.files import discover as files
    from devicefix.runner.run import check_files

    found = check_files(files.find([Path(sys.argv[2])]), Everywhere(Settings(fix=True, quiet=True)))
    changed = [outcome.before for outcome in found if outcome.result.output is not None]
    start = time.perf_counter()
    for data in changed:
        # old syntax, and forms such as `assert(x)` that some versions refuse
        with contextlib.suppress(libcst.ParserSyntaxError, libcst.CSTValidationError):
            libcst.parse_module(data)
    size, seconds = sum(map(len, changed)) / 1e6, time.perf_counter() - start
    print(f"LibCST's parse of the {len(changed)} files that change, {size:.1f} MB: {seconds:.1f} s")
    sys.exit()

for path in Path(sys.argv[2]).rglob("*.py"):
    data = path.read_bytes()
    if sys.argv[1] == "parse":
        with contextlib.suppress(SyntaxError, ValueError):
            ast.parse(data)
