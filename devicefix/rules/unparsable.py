from __future__ import annotations

import io
import tokenize

from devicefix.files.documents import NotANotebook
from devicefix.files.text import DecodeError
from devicefix.model import Finding
from devicefix.rules.base import Rule


class Unparsable(Rule):
    """
    ## What it does
    Reports files that are not valid Python 3, with the line and the cause.

    ## Why it matters
    Such a file is neither checked nor rewritten. Old PyTorch programs are often written in Python 2, or contain
    `.cuda(async=True)`: `async` is a keyword since Python 3.7, and PyTorch 0.4 renamed the argument to
    `non_blocking`.

    ## Example
    ```python
    print "loss", loss
    x = x.cuda(async=True)
    ```

    ## Use instead
    ```python
    print("loss", loss)
    x = x.cuda(non_blocking=True)
    ```

    ## Fix safety
    There is no fix: convert the file to Python 3 first, for example with `2to3`.
    """

    code = "DF901"
    name = "unparsable"
    summary = "The file cannot be parsed, and is not checked"


def explain(data: bytes, problem: Exception) -> Finding:
    """Return the finding for a file that cannot be parsed.

    Args:
        data: the bytes of the file.
        problem: the error.
    """
    line, column = 1, 1
    if isinstance(problem, NotANotebook):
        (line, column), data = problem.position, b""
        cause = str(problem)
    elif isinstance(problem, SyntaxError):
        line, column = problem.lineno or 1, max(problem.offset or 1, 1)
        cause = problem.msg
    elif isinstance(problem, DecodeError):
        cause = str(problem)
    elif isinstance(problem, ValueError):
        cause = str(problem) or "not Python source"
    else:
        cause = "nested too deeply"
    message = f"can't be parsed, so nothing in it is checked: {cause}{_hint(data, line)}"
    return Finding(Unparsable.code, message, line, column, line, column)


def _hint(data: bytes, line: int) -> str:
    """Return a hint for the two most common problems of old PyTorch programs."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        text = data.decode(encoding, errors="replace").splitlines()[line - 1]
    except (SyntaxError, UnicodeError, LookupError):
        return ""
    if "async" in text:
        return " (`async` is a keyword since Python 3.7; use `non_blocking`)"
    if text.lstrip().startswith(("print ", "print\t", "exec ")) or ", e:" in text or "raise " in text:
        return " (this is Python 2; convert it, for example with 2to3)"
    return ""
