"""Command lines of the system's shell, and the environment in which Python processes read their plan."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import devicefix.verify.runtime
from devicefix.files import system
from devicefix.verify.runtime.plan import VARIABLE, Plan

# The variable with the folder that a process needs in its PYTHONPATH to be watched.
STARTUP = "DEVICEFIX_STARTUP"
BOOTSTRAP = Path(devicefix.verify.runtime.__file__).parent / "bootstrap"

_SH, _CMD = ("/bin/sh", "-c"), ("cmd", "/d", "/s", "/c")
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
    return [*_SH, " ".join([line, *map(shlex.quote, arguments)])]


def is_of_shell(words: Sequence[str]) -> bool:
    """Return whether a command is one of `shell_command`."""
    return tuple(words[:-1]) in (_SH, _CMD)


def for_system(words: Sequence[str]) -> list[str] | str:
    """Return a command as `subprocess` takes it: `cmd` reads its line as it is, between quotes."""
    if system.WINDOWS and tuple(words[:-1]) == _CMD:
        return f'{" ".join(_CMD)} "{words[-1]}"'
    return list(words)


def environment(plan: Plan, extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment for a program, and store its plan.

    Args:
        plan: the plan for its processes.
        extra: further variables.
    """
    variables = {**os.environ, **extra, VARIABLE: plan.store(), "PYTHONDONTWRITEBYTECODE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    variables[STARTUP] = str(BOOTSTRAP)
    if plan.machine != "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables
