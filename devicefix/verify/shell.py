"""Command lines of the system's shell."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Sequence

from devicefix.files import system

_CMD = ("cmd", "/d", "/s", "/c")


def shell_command(line: str, arguments: Iterable[str] = ()) -> list[str]:
    """Return the command that runs a command line in the system's shell; see `for_system`.

    Args:
        line: the command line.
        arguments: further arguments, which the shell is to take as they are.
    """
    if system.WINDOWS:
        return [*_CMD, " ".join(filter(None, [line, subprocess.list2cmdline(arguments)]))]
    return ["/bin/sh", "-c", " ".join([line, *map(shlex.quote, arguments)])]


def for_system(words: Sequence[str]) -> list[str] | str:
    """Return a command as `subprocess` takes it: `cmd` reads its line as it is, between quotes."""
    if system.WINDOWS and tuple(words[:-1]) == _CMD:
        return f'{" ".join(_CMD)} "{words[-1]}"'
    return list(words)
