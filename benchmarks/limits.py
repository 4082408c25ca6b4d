"""What no checker can beat: read every Python file below a folder, and parse it if asked to.

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

    from devicefix import files, runner
    from devicefix.config import Settings

    found = runner.run(files.find([Path(sys.argv[2])]), Settings(fix=True, quiet=True))
    changed = [outcome.before for outcome in found if outcome.result.output is not None]
    start = time.perf_counter()
    for data in changed:
        libcst.parse_module(data)
    sys.exit(
        f"{len(changed)} files, {sum(map(len, changed)) / 1e6:.1f} MB: {time.perf_counter() - start:.1f} s"
    )

for path in Path(sys.argv[2]).rglob("*.py"):
    data = path.read_bytes()
    if sys.argv[1] == "parse":
        with contextlib.suppress(SyntaxError, ValueError):
            ast.parse(data)
