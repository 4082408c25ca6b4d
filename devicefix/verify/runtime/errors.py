"""The errors of a program: the one that ends it, whose traceback shows no frames of devicefix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from traceback import walk_tb
from types import TracebackType
from typing import Any

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.site import OURS

_reported: set[int] = set()  # the ids of errors


def install(events: Events) -> None:
    """Record the error that ends this process, and remove devicefix's own frames from its traceback.

    Args:
        events: the recorder.
    """
    hook = sys.excepthook

    def record(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        emit(events, problem)
        _strip(problem, set())
        hook(kind, problem, _own(trace))

    def show(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        hook(kind, problem, _own(trace))

    sys.excepthook, sys.__excepthook__ = record, show


def _strip(problem: BaseException | None, seen: set[int]) -> None:
    """Remove devicefix's own frames from an error, and from those that led to it or that it contains."""
    if problem is None or id(problem) in seen:
        return
    seen.add(id(problem))
    problem.__traceback__ = _own(problem.__traceback__)
    for other in (problem.__cause__, problem.__context__, *getattr(problem, "exceptions", ())):
        _strip(other, seen)


def emit(events: Events, problem: BaseException) -> None:
    """Record an error, unless it has been recorded already, or the exit status that a program chose.

    Args:
        events: the recorder.
        problem: the error, with its traceback.
    """
    if isinstance(problem, SystemExit) and not isinstance(problem.code, str):
        if problem.code and (handled := _handled(problem)) is not None:
            emit(events, handled)
        elif problem.code:
            events.emit("exit", status=problem.code, frames=_frames(problem.__traceback__))
        elif at := _importing(problem.__traceback__):
            events.emit("ended import", **at)
        return
    if isinstance(problem, GeneratorExit) or id(problem) in _reported:
        return
    _reported.add(id(problem))
    frames = _frames(problem.__traceback__)
    if isinstance(problem, SyntaxError) and problem.filename:
        frames.append({"file": problem.filename, "line": problem.lineno or 0, "function": ""})
    events.emit(
        "error",
        type=type(problem).__name__,
        message=text(problem)[:20_000],
        frames=frames,
        bases=[base.__name__ for base in type(problem).__mro__[1:]],
        before=[*_before(problem)],
    )


def _handled(problem: SystemExit) -> Exception | None:
    """Return the error that a program handles by ending with an exit status, as Hydra does."""
    earlier = problem.__context__
    while isinstance(earlier, SystemExit):
        earlier = earlier.__context__
    return earlier if isinstance(earlier, Exception) else None


def _importing(trace: TracebackType | None) -> dict[str, Any] | None:
    """Return the line that ends the program during an import, as if the program were complete."""
    frames = _frames(trace)
    modules = [frame for frame in frames if frame["function"] == "<module>"]  # and the script
    own = [frame for frame in frames if not frame["file"].startswith("<")]
    return own[-1] if len(modules) > 1 else None


def text(problem: BaseException) -> str:
    """Return the message of an error; empty if the program's own exception class fails to make it."""
    try:
        return str(problem)
    except Exception:
        return ""


def _before(problem: BaseException) -> Iterator[dict[str, Any]]:
    """Yield the errors that an error was raised from, or while the program handled them."""
    seen = {id(problem)}
    while (earlier := problem.__cause__ or problem.__context__) is not None and id(earlier) not in seen:
        seen.add(id(earlier))
        yield {"type": type(earlier).__name__, "message": text(earlier)[:2_000]}
        problem = earlier


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    codes = ((frame.f_code, line) for frame, line in walk_tb(_own(trace)))
    return [{"file": code.co_filename, "line": line, "function": code.co_name} for code, line in codes]


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of devicefix and those that started the program for it."""
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(OURS):
            if all(_is_runpy(entry.tb_frame.f_code.co_filename) for entry in kept):
                kept.clear()
        else:
            kept.append(trace)
        trace = trace.tb_next
    new = None
    for entry in reversed(kept):
        new = TracebackType(new, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return new


def _is_runpy(name: str) -> bool:
    """Return whether the file is `runpy`, which Python runs `-m` modules with."""
    return name == "<frozen runpy>" or os.path.basename(name) == "runpy.py"
