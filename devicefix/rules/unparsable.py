from __future__ import annotations

import io
import re
import sys

from devicefix.files.documents import NotANotebook
from devicefix.files.text import DecodeError, Source
from devicefix.model import Finding
from devicefix.rules.base import Rule


class Unparsable(Rule):
    """
    ## What it does
    Finds files that are not valid Python 3. Also finds invalid notebook cells and overly large files if they may use
    CUDA.

    ## Why it matters
    devicefix neither checks nor rewrites such code. If the file uses syntax from a newer Python version, run
    devicefix with that version. If the only error is the name `async`, devicefix still checks the file (see `DF814`).

    ## Example
    ```python
    print "loss", loss
    ```

    ## Use instead
    ```python
    print("loss", loss)
    ```

    ## Fix safety
    There is no fix. Convert a Python 2 file to Python 3 first, for example with `python3.12 -m lib2to3 --write
    train.py`. Python 3.13 no longer includes `lib2to3`. If the file mixes tabs with spaces, replace the tabs, for
    example with `expand -t 8`.
    """

    code = "DF901"
    name = "unparsable"
    summary = "The code cannot be checked"


def explain(data: bytes, problem: Exception, cell: int | None = None) -> Finding:
    """Return the finding for a file, or a notebook's cell, that cannot be parsed.

    Args:
        data: its bytes.
        problem: the error.
        cell: the number of the cell; None for a file.
    """
    line, column = 1, 1
    if isinstance(problem, NotANotebook):
        (line, column), cause = problem.position, str(problem)
    elif isinstance(problem, SyntaxError):
        line, column = problem.lineno or 1, max(problem.offset or 1, 1)
        code = _STRING.sub(r"\g<quote>\g<quote>", _line(data, line)[:_LONGEST])
        cause = _of_python_2(code, problem, cell) or _of_newer_python(code) or problem.msg
    elif isinstance(problem, DecodeError):
        cause = str(problem)
    elif isinstance(problem, ValueError):
        cause = str(problem) or "not Python source"
    else:
        cause = "nested too deeply"
    message = f"this code is not checked: {cause}"
    return Finding(Unparsable.code, message, line, column, line, column, cell=cell)


_LONGEST = 1000  # characters of a line
# What Python 3 refuses, by the line of the error, with nothing in its strings.
_STRING = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)""")
_PYTHON_2 = (
    (re.compile(r"(?:^|[;:])\s*print\s+[^\s(=]"), "`print` without parentheses"),
    (re.compile(r"(?:^|[;:])\s*exec\s+[^\s(=]"), "`exec` without parentheses"),
    (re.compile(r"\bexcept\b.*,\s*\w+\s*:"), "`except E, e:`"),
    (re.compile(r"\braise\s+[\w.]+\s*,"), "`raise E, text`"),
    (re.compile(r"`"), "backticks"),
    (re.compile(r"<>"), "`<>`"),
    (re.compile(r"\b(?:0\d+|\d+[lL]|0[xX][\da-fA-F]+[lL])\b"), "an old number literal"),
    (re.compile(r"\b[uU][rR]['\"]"), "a `ur` string"),
    (re.compile(r"\blambda\s*\(|\bdef\s+\w+\s*\(([^()]*,)?\s*\("), "a tuple as a parameter"),
)

# What an older Python 3 refuses, and the first version that accepts it.
_NEWER = (
    (re.compile(r"\b(?:def|class)\s+\w+\s*\["), "a type parameter", (3, 12)),
    (re.compile(r"^\s*type\s+\w+\s*[\[=]"), "a `type` statement", (3, 12)),
    (re.compile(r"\b[tT][rR]?['\"]|\b[rR][tT]['\"]"), "a template string", (3, 14)),
    (re.compile(r"^\s*except\s*\*"), "`except*`", (3, 11)),
)


def _of_python_2(code: str, problem: SyntaxError, cell: int | None) -> str | None:
    """Return what to do about code that is Python 2 by the line of its first error, None for any other."""
    if isinstance(problem, TabError):
        form: str | None = "tabs mixed with spaces"
        advice, tool = "expand each tab to the next multiple of 8 columns", "`expand -t 8`"
    else:
        form = next((name for pattern, name in _PYTHON_2 if pattern.search(code)), None)
        advice, tool = "convert it to Python 3 first", "`2to3` from Python 3.12 or older"
    if form is None:
        return None
    example = f", for example with {tool}" if cell is None else ""  # the tools read files of Python
    return f"it is Python 2 ({form}); {advice}{example}"


def _of_newer_python(code: str) -> str | None:
    """Return what to do about a file that needs a newer Python by the line of its first error, or None."""
    for pattern, name, version in _NEWER:
        if sys.version_info < version and pattern.search(code):
            needed = ".".join(map(str, version))
            return f"{name} needs Python {needed}; run devicefix with that version, or a later one"
    return None


def _line(data: bytes, number: int) -> str:
    """Return a line of a file, empty if the file can't be decoded."""
    try:
        lines = io.StringIO(Source(data).text, newline=None).read().split("\n")
    except DecodeError:
        return ""
    return lines[number - 1] if number <= len(lines) else ""
