"""Find IPython's commands among the code of a cell.

The syntax is IPython's (https://ipython.readthedocs.io/en/stable/interactive/reference.html): a logical line
that starts with one of `% ! ? , ; /`, the right side of `x = %magic` and `x = !command`, and a line that ends
in `?`. None of that is valid Python, so it can't be taken for code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from devicefix.files.notebook.markers import INSTALLS
from devicefix.files.text import parse, replaced

# The body of a cell with one of these is Python that runs in the notebook's namespace.
_OF_PYTHON = frozenset({"capture", "debug", "prun", "time", "timeit"})
_CELL_MAGIC = re.compile(r"\s*%%(\w*)")
_COMMAND = re.compile(r"[ \t\f]*(?=[%!?,;/])")
_TIMED = re.compile(r"%(?:time|timeit|prun|memit)(?:[ \t]+-[A-Za-z](?:[ \t]*\d+)?)*[ \t]+(?P<code>[^\s\-].*)")
# The rest of a line, with the lines that a backslash joins to it.
_REST = re.compile(r"(?:[^\\\r\n]|\\(?:\r\n|.|\Z))*", re.S)
_TOKEN = re.compile(
    r"""
      (?P<string> \"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z) | '{3}(?:\\.|[^\\])*?(?:'{3}|\Z)
                | "(?:\\(?:\r\n|.)|[^"\\\r\n])*"? | '(?:\\(?:\r\n|.)|[^'\\\r\n])*'? )
    | (?P<comment> \#[^\r\n]* )
    | (?P<space> [ \t\f]+ | \\(?:\r\n|\r|\n) )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | (?P<end> \r\n | \r | \n )
    | (?P<assigned> (?<![=!<>:+\-*/%&|^@~]) =[ \t]* (?=%[A-Za-z_]|!(?!=)) )
    | (?P<help> \? )
    | [^\W\d]\w* | .
    """,
    re.X | re.S,
)

_SETS = re.compile(r"%(?:set_)?env[ \t]+([A-Za-z_]\w*)[ \t]*(?:=|[ \t])[ \t]*\S")
_INSTALLS = re.compile(r"[!%].*\b(?:install|uv[ \t]+(?:add|sync|pip[ \t]+sync))\b", re.S)

Span = tuple[int, int]
Mask = Callable[[str, bool], str]


def is_python(cell: str) -> bool:
    """Return whether a cell is Python for the notebook's namespace, not the body of another magic."""
    magic = _CELL_MAGIC.match(cell)
    return magic is None or magic[1] in _OF_PYTHON


def effect(command: str) -> str:
    """Return `INSTALLS` for a command such as `!pip install x`, `A` for `%env A=1`, else nothing."""
    if _INSTALLS.match(command):
        return INSTALLS
    match = _SETS.match(command)
    return match[1] if match else ""


def with_code(cell: str) -> str:
    """Return a cell from which all code may have been removed: IPython refuses `%%time` without any."""
    command, _, code = cell.partition("\n")
    return cell if _CELL_MAGIC.match(cell) is None or code.strip() else f"{command.rstrip()}\npass"


def masked(cell: str, mask: Mask) -> str:
    """Return a cell with its commands masked.

    Args:
        cell: the text.
        mask: returns Python for a command. The second argument is true for a command before a statement that
            stays, such as `%time `.
    """
    found = _commands(cell)
    return replaced(cell, ((start, end, mask(cell[start:end], timed)) for start, end, timed in found))


def _commands(cell: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the spans of the commands, and whether each is followed by a statement that it times."""
    at = 0
    while at < len(cell):
        command = _COMMAND.match(cell, at)
        if command:
            at = _rest(cell, command.end())
            code = _timed_code(cell[command.end() : at])
            yield command.end(), at - len(code), bool(code)
            at = _next_line(cell, at)
        else:
            found, at = _in_logical_line(cell, at)
            if found:
                yield *found, False


def _rest(cell: str, at: int) -> int:
    match = _REST.match(cell, at)
    assert match is not None
    return match.end()


def _next_line(cell: str, at: int) -> int:
    return at + (2 if cell.startswith("\r\n", at) else 1)


def _timed_code(command: str) -> str:
    """Return the simple statements that a command such as `%time` runs in the notebook's namespace."""
    match = _TIMED.fullmatch(command)
    if match is None:
        return ""
    try:
        parse(f"_; {match['code']}")  # only simple statements can follow a semicolon
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return match["code"]


def _in_logical_line(cell: str, begin: int) -> tuple[Span | None, int]:
    """Return the command in a logical line that starts with Python, and the start of the next line."""
    at, depth, last, first = begin, 0, "", begin
    while at < len(cell):
        token = _TOKEN.match(cell, at)
        assert token is not None
        kind = token.lastgroup
        if kind == "end" and depth <= 0:
            break
        if kind == "assigned" and depth <= 0:
            end = _rest(cell, token.end())
            return (token.end(), end), _next_line(cell, end)
        depth += (kind == "open") - (kind == "close")
        if kind not in ("space", "end"):
            first = first if last else at
            last = kind or "code"
        at = token.end()
    found = (first, at) if last == "help" else None
    return found, _next_line(cell, at)
