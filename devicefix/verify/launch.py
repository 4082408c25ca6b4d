"""Run commands under limits, so that they leave no process behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress

import psutil

from devicefix.files import signals
from devicefix.verify.commands import Command, Ended, Limits
from devicefix.verify.runtime.plan import VARIABLE, Plan
from devicefix.verify.startup import environment, for_system

_GRACE = 3.0  # seconds between asking a process to end and ending it
_TICK = 0.01
_CHECK = 0.2


def run_command(command: Command, plan: Plan, limits: Limits, tick: Callable[[float], None]) -> Ended:
    """Run a command whose Python processes follow a plan, and end every process that it leaves behind.

    Args:
        command: what to run, and where.
        plan: the plan for the processes.
        limits: the limits that end the run.
        tick: called regularly with the seconds so far.

    Raises:
        OSError: the command cannot be started.
    """
    start = time.monotonic()
    process = None
    limit = None
    try:
        process = _start(command, plan)
        checked = start
        while limit is None and process.poll() is None:
            time.sleep(_TICK)
            tick(time.monotonic() - start)
            if time.monotonic() - checked >= _CHECK:
                checked = time.monotonic()
                limit = _exceeded(process, limits, checked - start)
        seconds = time.monotonic() - start
    finally:
        with signals.held():
            _end(process, plan)
    return Ended(process.wait(), seconds, limit)


def _start(command: Command, plan: Plan) -> subprocess.Popen[bytes]:
    with signals.held(), command.output.open("wb") if command.output else nullcontext() as output:
        return subprocess.Popen(
            for_system(command.words),
            cwd=command.folder,
            env=environment(plan, command.environment),
            stdin=command.stdin.next(),
            stdout=output or (sys.stderr if command.to_stderr else None),
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # on Windows
        )


def _exceeded(process: subprocess.Popen[bytes], limits: Limits, seconds: float) -> str | None:
    if limits.timeout is not None and seconds > limits.timeout:
        return "timeout"
    if limits.memory is not None and _memory(process.pid) > limits.memory:
        return "memory"
    return None


def _memory(pid: int) -> int:
    """Return the memory in bytes that a process and its descendants use."""
    total = 0
    for member in _family(pid):
        with suppress(psutil.Error):
            total += member.memory_info().rss
    return total


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _end(process: subprocess.Popen[bytes] | None, plan: Plan) -> None:
    """End the remaining processes of a run, including those that left their parents and group."""
    family = _family(process.pid) if process else []
    left = {found.pid: found for found in (*family, *_strays(plan))}
    _signal(left.values(), "terminate")
    _, alive = psutil.wait_procs(list(left.values()), timeout=_GRACE)
    _signal(alive, "kill")
    _signal(_strays(plan), "kill")
    psutil.wait_procs(alive, timeout=_GRACE)


def _strays(plan: Plan) -> list[psutil.Process]:
    """Return the processes that follow the plan, whatever their parents."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(VARIABLE) == plan.path:
                found.append(process)
    return found


def _signal(processes: Iterable[psutil.Process], method: str) -> None:
    for process in processes:
        with suppress(psutil.Error):
            getattr(process, method)()
