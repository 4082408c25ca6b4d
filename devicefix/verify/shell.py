"""Command lines of the system's shell."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence

from devicefix.files import system

# The variable with the folder that a process needs in its PYTHONPATH to be watched.
STARTUP = "DEVICEFIX_STARTUP"

_CMD = ("cmd", "/d", "/s", "/c")
_PYTHONPATH = re.compile(r"(?<![^\s;&|(])PYTHONPATH=")


def shell_command(line: str, arguments: Iterable[str] = ()) -> list[str]:
    """Return the command that runs a command line in the system's shell; see `for_system`.

    If the line sets `PYTHONPATH`, as in `PYTHONPATH=. python train.py`, the folder of `STARTUP` goes first.

    Args:
        line: the command line.
        arguments: further arguments, which the shell is to take as they are.
    """
    if system.WINDOWS:
        return [*_CMD, " ".join(filter(None, [line, subprocess.list2cmdline(arguments)]))]
    line = _PYTHONPATH.sub(f'PYTHONPATH="${STARTUP}":', line)
    return ["/bin/sh", "-c", " ".join([line, *map(shlex.quote, arguments)])]


def for_system(words: Sequence[str]) -> list[str] | str:
    """Return a command as `subprocess` takes it: `cmd` reads its line as it is, between quotes."""
    if system.WINDOWS and tuple(words[:-1]) == _CMD:
        return f'{" ".join(_CMD)} "{words[-1]}"'
    return list(words)
