"""What a run has shown: the verdict, and what led to it."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from devicefix.verify.launch import Ended
from devicefix.verify.program import Program

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')


class Verdict(str, Enum):
    """What is known of a program after a run."""

    PASS = "pass"
    FAIL = "fail"
    STOPPED = "stopped"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for CUDA that the rewritten program still makes.

    Attributes:
        place: the line that makes it.
        call: what is called.
        count: how often.
        library: the library that the line has called and that makes the request itself.
    """

    place: Place
    call: str
    count: int
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Memory that CUDA would have copied, and that was changed while both sides were in use.

    Attributes:
        what: what shares the memory.
        move: the call that copies on CUDA.
        moved: where it stands.
        changed: the line that changes one side, None where it could not be seen.
    """

    what: str
    move: str
    moved: Place
    changed: Place | None


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that a program has ended in.

    Attributes:
        error: the error's type and message.
        frames: the lines of the program that led to it, outermost first; libraries' are left out.
    """

    error: str
    frames: tuple[Place, ...] = ()


@dataclass(slots=True)
class Run:
    """What one run of the program has shown.

    Attributes:
        verdict: of this run by itself.
        reason: why, in one line.
        seconds: how long it took.
        limit: what has stopped it: "timeout", "memory" or "steps".
        steps: the optimizer steps of the process that took most.
        failure: the error that ended it.
        requests: for CUDA, most frequent first.
        copies: that a CPU does not make.
        ran: the fixed lines that have run; `fixes` is how many there are.
        modules: how many rewritten modules there are.
        warnings: what else to know of the run.
    """

    verdict: Verdict = Verdict.PASS
    reason: str = ""
    seconds: float = 0.0
    limit: str | None = None
    steps: int = 0
    failure: Failure | None = None
    requests: list[Request] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    ran: list[Place] = field(default_factory=list)
    not_run: list[Place] = field(default_factory=list)
    modules: int = 0
    warnings: list[str] = field(default_factory=list)


def judge(ended: Ended, events: Iterable[dict[str, Any]], program: Program) -> Run:
    """Make a verdict of how a run has ended and of what has happened in it."""
    events = list(events)
    run = Run(seconds=ended.seconds, modules=len(program.rewritten))
    run.steps = max((e["steps"] for e in events if e["kind"] == "step"), default=0)
    run.limit = ended.limit or ("steps" if any(e["kind"] == "stopped" for e in events) else None)
    run.requests = _requests(events)
    run.copies = _copies(events)
    _fixes(run, events, program)
    run.warnings = _warnings(events)
    run.verdict, run.reason = _verdict(run, ended, events, program)
    return run


def _verdict(run: Run, ended: Ended, events: list[dict[str, Any]], program: Program) -> tuple[Verdict, str]:
    if not any(e["kind"] == "process" for e in events):
        return Verdict.TROUBLE, "the command started no Python that could be watched"
    if ended.limit:
        return Verdict.STOPPED, f"the {ended.limit} limit was reached after {ended.seconds:.0f} s"
    if ended.status:
        run.failure = _failure(events, program)
        return Verdict.FAIL, run.failure.error if run.failure else ended_by(ended.status)
    own = [request for request in run.requests if request.library is None]
    if own:
        return Verdict.FAIL, "it still asks for CUDA"
    if run.copies:
        return Verdict.FAIL, "memory that CUDA copies is shared on a CPU, and changed"
    if run.limit:
        return Verdict.STOPPED, "as many optimizer steps as asked for, without an error"
    return Verdict.PASS, ""


def ended_by(status: int) -> str:
    """An exit status in words."""
    if status > 128 and os.name == "posix":  # a shell's way to say that a signal has ended its command
        status = 128 - status
    if status >= 0:
        return f"it ended with exit status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"


def _failure(events: list[dict[str, Any]], program: Program) -> Failure | None:
    """The first error: where several processes end in one, the others' come of it."""
    for event in events:
        if event["kind"] == "error":
            frames = [Place(f["file"], f["line"], f["function"]) for f in event["frames"]]
            # the error of a worker process comes to the user as text
            frames += [
                Place(m["file"], int(m["line"]), m["function"] or "")
                for m in _FRAME.finditer(event["message"])
            ]
            own = tuple(frame for frame in frames if _inside(frame.file, program.roots))
            return Failure(_error(event["type"], event["message"]), own)
    return None


def _error(kind: str, message: str) -> str:
    """An error in one line; where it passes on that of another process, this is what that one ended in."""
    lines = [line for line in message.splitlines() if line.strip()]
    if not lines:
        return kind
    return lines[-1] if "Traceback (most recent call last)" in message else f"{kind}: {lines[0]}"


def _inside(path: str, roots: Iterable[str]) -> bool:
    if path.startswith("<"):
        return False
    real = os.path.realpath(path)
    return "site-packages" not in real and any(real.startswith(os.path.join(root, "")) for root in roots)


def _requests(events: list[dict[str, Any]]) -> list[Request]:
    counts = Counter(
        (e["file"], e["line"], e["library"], e["call"]) for e in events if e["kind"] == "request"
    )
    return [
        Request(Place(file, line), call, count, library)
        for (file, line, library, call), count in counts.most_common()
    ]


def _copies(events: list[dict[str, Any]]) -> list[Copy]:
    found = {}
    for event in events:
        if event["kind"] == "copy":
            moved = Place(event["moved"]["file"], event["moved"]["line"])
            changed = event["changed"] and Place(event["changed"]["file"], event["changed"]["line"])
            found[moved, changed] = Copy(event["what"], event["move"], moved, changed)
    return list(found.values())


def _fixes(run: Run, events: list[dict[str, Any]], program: Program) -> None:
    ran = {(e["file"], e["line"]) for e in events if e["kind"] == "fix"}
    for path, lines in sorted(program.fixes.items()):
        for line in lines:
            (run.ran if (path, line) in ran else run.not_run).append(Place(path, line))


def _warnings(events: list[dict[str, Any]]) -> list[str]:
    troubles = {
        f"the watch of {e['where']} failed: {e['message']}": 0 for e in events if e["kind"] == "trouble"
    }
    return list(troubles)
