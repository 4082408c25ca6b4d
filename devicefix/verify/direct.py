"""A run of a rewritten program that nothing watches, as `python` runs the program itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from devicefix.config.resolver import Resolver
from devicefix.files.signals import temporary_folder
from devicefix.files.system import handled
from devicefix.verify import notebook
from devicefix.verify.program import prepare
from devicefix.verify.runtime.events import read
from devicefix.verify.startup import environment
from devicefix.verify.verdict import Location

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, slots=True)
class Invocation:
    """A program to run.

    Attributes:
        command: the words of the command.
        folder: the folder to run it in.
        sources: the files and folders to rewrite.
        notebook: the notebook that it runs, or None.
        machine: the machine to run it on, as in `Plan`; "cuda" for what there is.
        rewrite: whether to rewrite its modules.
    """

    command: Sequence[str]
    folder: Path
    sources: tuple[Path, ...]
    notebook: Path | None = None
    machine: str = "cuda"
    rewrite: bool = True


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program.

    Attributes:
        status: the exit status; the negative number of the signal if one ended the program.
        errors: the files that could not be rewritten, and why.
        lacking: what it used and the simulation lacks, with the lines.
        trouble: why there was no simulation.
    """

    status: int
    errors: list[str]
    lacking: dict[str, list[Location]] = field(default_factory=dict)
    trouble: str = ""


def run(invocation: Invocation, resolver: Resolver) -> Ending:
    """Run a program with its modules rewritten in memory.

    Args:
        invocation: the program.
        resolver: the settings to rewrite with.

    Raises:
        OSError: the command cannot be started.
        NotANotebook: the notebook is not one.
    """
    with temporary_folder() as folder:
        program = prepare(invocation.sources, resolver, folder, None if invocation.rewrite else ())
        if invocation.notebook is not None:
            notebook.add(invocation.notebook, program, resolver, folder)
        if not invocation.rewrite:
            program = program.original
        plan = program.plan(folder, invocation.machine, watch=False)
        process = subprocess.Popen(invocation.command, cwd=invocation.folder, env=environment(plan))

        def forward(number: int, _: FrameType | None) -> None:
            if number != signal.SIGINT or not _in_foreground():  # else the terminal has sent it there, too
                process.send_signal(number)

        with handled(_FORWARDED, forward):
            status = process.wait()
        events = list(read(plan.events))
        lacking: dict[str, list[Location]] = {}
        used = ((each["what"], each["file"], each["line"]) for each in events if each["kind"] == "lacking")
        for what, *at in dict.fromkeys(used):  # of all processes
            lacking.setdefault(what, []).append(Location(*at))
        trouble = next((each["message"] for each in events if each["kind"] == "trouble"), "")
        return Ending(status, program.errors, lacking, trouble)


def _in_foreground() -> bool:
    """Return whether Ctrl-C in a terminal reaches this process and those that it starts."""
    try:
        return os.tcgetpgrp(sys.__stderr__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):  # Windows, no terminal, a closed stream
        return os.name == "nt"
