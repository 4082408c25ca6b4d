"""What a program ends in: errors that nobody caught."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from devicefix.verify.runtime.events import Events

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_told: set[int] = set()


def install(events: Events) -> None:
    """Write down the error that ends this process, and keep devicefix's own frames out of what it prints."""
    hook = sys.excepthook

    def told(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        tell(events, problem)
        hook(kind, problem.with_traceback(_own(trace)), _own(trace))

    sys.excepthook = told


def tell(events: Events, problem: BaseException) -> None:
    """Write an error down, unless it is none, or has been written down already.

    Args:
        events: where to.
        problem: the error, with its traceback.
    """
    if isinstance(problem, SystemExit) and not isinstance(problem.code, str):
        return  # the exit status says the same
    if isinstance(problem, GeneratorExit) or id(problem) in _told:
        return
    _told.add(id(problem))
    frames = [*_frames(problem.__traceback__)]
    if isinstance(problem, SyntaxError) and problem.filename:
        frames.append({"file": problem.filename, "line": problem.lineno or 0, "function": ""})
    try:
        message = str(problem)
    except Exception:  # the program's own class may do anything
        message = ""
    events.emit("error", type=type(problem).__name__, message=message[:20_000], frames=frames)


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    frames = []
    trace = _own(trace)
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append({"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name})
        trace = trace.tb_next
    return frames


def _own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without devicefix's own frames, and without those that started the program for it."""
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_OURS):
            if all(_starts(each.tb_frame.f_code.co_filename) for each in kept):
                kept.clear()
        else:
            kept.append(trace)
        trace = trace.tb_next
    new = None
    for each in reversed(kept):
        new = TracebackType(new, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return new


def _starts(name: str) -> bool:
    """Whether a file is the module that Python runs `__main__` with."""
    return name == "<frozen runpy>" or os.path.basename(name) == "runpy.py"
