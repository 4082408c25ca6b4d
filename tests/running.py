"""Helpers that run `devicefix verify`, or a small program as it does with chosen watches."""

from __future__ import annotations

import atexit
import json
import os
import re
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from forks import Forks
from helpers import Cli, devicefix

from devicefix.verify import runtime
from devicefix.verify.runtime.events import read
from devicefix.verify.runtime.plan import VARIABLE, Plan

if TYPE_CHECKING:
    from devicefix.verify.commands import Command, Ended, Limits

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


def run_in_fork(command: Command, plan: Plan, _: Limits, tick: Callable[[float], None]) -> Ended:
    """Run `python SCRIPT` as `launch.run_command` does, without the time to import torch."""
    from devicefix.verify.commands import Ended
    from devicefix.verify.startup import environment

    words = shlex.split(command.words[-1]) if command.words[0] == "/bin/sh" else command.words
    script = os.path.join(command.folder, words[1])
    variables = environment(plan, {**command.environment, "OMP_NUM_THREADS": "1"})
    output, errors = Path(plan.folder, "output.txt"), Path(plan.folder, "errors.txt")
    start = time.monotonic()
    try:
        status = forks().run([script, *words[2:]], command.folder, variables, output, errors, tick)
    except BaseException:
        forks.cache_clear()
        raise
    seconds = time.monotonic() - start
    if command.output is None:
        print(output.read_text(), end="", file=sys.stderr if command.to_stderr else sys.stdout)
        print(errors.read_text(), end="", file=sys.stderr)
    elif command.output != output:
        command.output.write_bytes(output.read_bytes() + errors.read_bytes())
    return Ended(status, seconds)


def verify_in_forks(patch: pytest.MonkeyPatch) -> None:
    """Let `devicefix verify` run programs in forks, on a machine without CUDA."""
    patch.setattr("devicefix.verify.runs.run_command", run_in_fork)
    # The tests hide CUDA anyway. To ask for it takes another import of torch.
    patch.setattr("devicefix.verify.against_cuda.has_cuda", lambda _: False)


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


# With these arguments, more than a script runs, or a limit ends it.
OF_PROCESSES = {"-c", "-m", "--memory", "--python", "--timeout"}


class Verified:
    """The result of one call of `devicefix verify`."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status = status
        self.output = output
        self.errors = errors
        self.report: dict[str, Any] = json.loads(output) if output.startswith("{") else {}

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
        process: bool = False,
    ) -> Verified:
        """Run `devicefix verify`, and check that no file changes and no frame of devicefix is shown.

        It is called in this process, and runs the program in a fork, unless the test needs more than that.

        Args:
            *arguments: the arguments of `devicefix verify`.
            stdin: the standard input of the program.
            text: whether to get the report as text instead of JSON.
            variables: variables of the environment.
            process: whether devicefix and the program run in processes of their own in any case.
        """
        for package in ("psutil", "torch"):
            pytest.importorskip(package)
        formats = [] if text else ["--output-format", "json"]
        before = self.content()
        process = process or bool(stdin or stdin is None or variables or OF_PROCESSES.intersection(arguments))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
                patch.delenv(name, raising=False)
            for name, value in {"OMP_NUM_THREADS": "1", **(variables or {})}.items():
                patch.setenv(name, value)
            if process:
                ran = devicefix("verify", *formats, *arguments, cwd=self.path, input=stdin, timeout=600)
                done = Verified(ran.returncode, ran.stdout, ran.stderr)
            else:
                patch.chdir(self.path)
                verify_in_forks(patch)
                called = Cli()("verify", *formats, *arguments)
                done = Verified(called.exit_code, called.stdout, called.stderr)
        ours = re.search(
            r'(File ".*devicefix/verify/runtime/.*)|(devicefix/verify/runtime/.*: in )', done.errors
        )
        assert not ours, done.errors
        assert {name: data for name, data in self.content().items() if name in before} == before
        return done

    def content(self) -> dict[str, bytes]:
        """Return the content of all files, by path."""
        return {str(file): file.read_bytes() for file in self.path.rglob("*") if file.is_file()}
