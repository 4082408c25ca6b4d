"""Helpers that run `devicefix verify`, or a small program as it does with chosen watches."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from forks import Forks
from helpers import devicefix

from devicefix.verify import runtime
from devicefix.verify.runtime.events import read
from devicefix.verify.runtime.plan import VARIABLE, Plan

BOOTSTRAP = Path(runtime.__file__).parent / "bootstrap"


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
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    output, errors = folder / "run" / "output.txt", folder / "run" / "errors.txt"
    status = forks().run(
        [str(script), *arguments],
        folder,
        {**environment, VARIABLE: made.store(), "PYTHONPATH": str(BOOTSTRAP)},
        output,
        errors,
    )
    return Ran(status, output.read_text(), errors.read_text(), list(read(made.events)))


@cache
def forks() -> Forks:
    """Return the process that runs programs, which ends with this one."""
    process = Forks({**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    atexit.register(process.close)
    return process


NET = """
import torch

def make():
    # a comment
    return torch.nn.Linear(4, 2).cuda()
"""

TRAIN = """
import torch
from net import make

def main():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = model(torch.randn(8, 4).cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


class Verified:
    """The result of one call of `devicefix verify`."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.output = done.stdout
        self.errors = done.stderr
        self.report: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    @property
    def run(self) -> dict[str, Any]:
        """The part of the report on the run."""
        run: dict[str, Any] = self.report["run"]
        return run

    def requests(self) -> list[tuple[str, int, int]]:
        """Return the file, line and count of each request for CUDA."""
        return [
            (Path(request["place"]["file"]).name, request["place"]["line"], request["count"])
            for request in self.run["requests"]
        ]


class ProgramFolder:
    """A folder with a program to verify."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **modules: str) -> None:
        """Write modules, by name. Their code may be indented."""
        for name, code in modules.items():
            file = self.path / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(textwrap.dedent(code).lstrip("\n"), encoding="utf-8")

    def verify(
        self,
        *arguments: str,
        stdin: str | None = "",
        text: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Verified:
        """Run `devicefix verify`, and check that no file changes and no frame of devicefix is shown.

        Args:
            *arguments: the arguments of `devicefix verify`.
            stdin: the standard input of the program.
            text: whether to get the report as text instead of JSON.
            variables: variables of the environment.
        """
        formats = [] if text else ["--output-format", "json"]
        before = self.content()
        active = ("VIRTUAL_ENV", "CONDA_PREFIX")
        outside = {name: value for name, value in os.environ.items() if name not in active}
        environment = {**outside, "OMP_NUM_THREADS": "1", **(variables or {})}
        done = devicefix(
            "verify", *formats, *arguments, cwd=self.path, input=stdin, timeout=120, env=environment
        )
        ours = re.search(
            r'(File ".*devicefix/verify/runtime/.*)|(devicefix/verify/runtime/.*: in )', done.stderr
        )
        assert not ours, done.stderr
        assert {name: data for name, data in self.content().items() if name in before} == before
        return Verified(done)

    def content(self) -> dict[str, bytes]:
        """Return the content of all files, by path."""
        return {str(file): file.read_bytes() for file in self.path.rglob("*") if file.is_file()}
