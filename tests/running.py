"""Helpers that run a small program as `devicefix verify` does, with chosen watches."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import devicefix.verify.runtime
from devicefix.verify.runtime.events import read
from devicefix.verify.runtime.plan import VARIABLE, Plan

BOOTSTRAP = Path(devicefix.verify.runtime.__file__).parent / "bootstrap"


class Ran:
    """A finished program: its exit status, its output, and the events of its run."""

    def __init__(self, status: int, output: str, errors: str, events: list[dict[str, Any]]) -> None:
        self.status = status
        self.output = output
        self.errors = errors
        self.events = events

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [event for event in self.events if event["kind"] == kind]


def run_program(folder: Path, code: str, *arguments: str, **plan: Any) -> Ran:
    """Run a program under a plan that rewrites nothing.

    Args:
        folder: the folder to put the program into.
        code: the program, which may be indented. Its first line that is not empty is line 1.
        *arguments: the arguments of the program.
        **plan: fields of the plan.
    """
    (folder / "run").mkdir(exist_ok=True)
    script = folder / "program.py"
    script.write_text(textwrap.dedent(code).lstrip("\n"), encoding="utf-8")
    made = Plan(folder=str(folder / "run"), roots=(os.path.realpath(folder),), **plan)
    Path(made.events).unlink(missing_ok=True)
    environment = {
        **os.environ,
        VARIABLE: made.store(),
        "PYTHONPATH": str(BOOTSTRAP),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, list(read(made.events)))
