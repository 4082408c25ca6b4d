"""Runs a command under limits, and leaves nothing of it running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

import devicefix.verify.runtime
from devicefix.verify.runtime.plan import VARIABLE, Plan

BOOTSTRAP = Path(devicefix.verify.runtime.__file__).parent / "bootstrap"
_GRACE = 3.0  # seconds between asking a process to end and ending it
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use.

    Attributes:
        timeout: in seconds, None for no limit.
        memory: in bytes, of all processes together; None for no limit.
    """

    timeout: float | None = 600
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run has ended.

    Attributes:
        status: the exit status; negative for the number of the signal that ended it.
        seconds: how long it took.
        limit: "timeout" or "memory" where that has ended it.
    """

    status: int
    seconds: float
    limit: str | None = None


def run(
    command: list[str],
    plan: Plan,
    limits: Limits,
    folder: Path,
    *,
    environment: dict[str, str] | None = None,
    to_stderr: bool = False,
    tick: Callable[[float], None] = lambda seconds: None,
) -> Ended:
    """Run a command whose Python processes follow a plan. Its output goes where devicefix's own goes.

    Args:
        command: the words of the command.
        plan: what the processes are to do.
        limits: what ends it.
        folder: where it runs.
        environment: variables to set for it.
        to_stderr: whether what it prints goes to the standard error.
        tick: called now and then with the seconds that it has been running.

    Raises:
        OSError: the command cannot be started.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(plan, environment or {}),
        # In a group of its own it could not read from the terminal: it would be stopped for trying.
        stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
        stdout=sys.stderr if to_stderr else None,
        start_new_session=True,
    )
    limit = None
    try:
        while limit is None:
            try:
                process.wait(_TICK)
                break
            except subprocess.TimeoutExpired:
                tick(time.monotonic() - start)
                limit = _exceeded(process, limits, time.monotonic() - start)
    finally:
        _end(process, plan)
    return Ended(process.wait(), time.monotonic() - start, limit)


def _environment(plan: Plan, extra: dict[str, str]) -> dict[str, str]:
    environment = {**os.environ, **extra, VARIABLE: plan.store(), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    if plan.machine != "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def _exceeded(process: subprocess.Popen[bytes], limits: Limits, seconds: float) -> str | None:
    if limits.timeout is not None and seconds > limits.timeout:
        return "timeout"
    if limits.memory is not None and _memory(process.pid) > limits.memory:
        return "memory"
    return None


def _memory(pid: int) -> int:
    """The memory in bytes that a process and what it has started hold."""
    total = 0
    for each in _family(pid):
        try:
            total += each.memory_info().rss
        except psutil.Error:
            continue
    return total


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _end(process: subprocess.Popen[bytes], plan: Plan) -> None:
    """End whatever of a run is still there, also what has left its parents and its group."""
    left = {each.pid: each for each in (*_family(process.pid), *_strays(plan))}
    _signal(left.values(), "terminate")
    _, alive = psutil.wait_procs(list(left.values()), timeout=_GRACE)
    _signal(alive, "kill")
    _signal(_strays(plan), "kill")
    psutil.wait_procs(alive, timeout=_GRACE)


def _strays(plan: Plan) -> list[psutil.Process]:
    """The processes that follow the plan, whoever their parents are."""
    mine = os.path.join(plan.folder, "plan.json")
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get(VARIABLE) == mine:
                found.append(each)
        except (psutil.Error, OSError):
            continue
    return found


def _signal(processes: Iterable[psutil.Process], method: str) -> None:
    for each in processes:
        try:
            getattr(each, method)()
        except psutil.Error:
            continue
