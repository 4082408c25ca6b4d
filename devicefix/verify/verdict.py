"""The verdict on a run, and the evidence for it."""

from __future__ import annotations

import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, count, islice
from typing import Any

from devicefix.runner.coverage import Seen
from devicefix.verify.commands import Ended
from devicefix.verify.program import Program

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
EXIT = "exit"  # the kind of failure of a program that ends itself with an exit status
_LONGEST = 2_000  # characters of a message
NOT_FOUND = 127  # the exit status of a shell


class Verdict(str, Enum):
    """The verdict on a run."""

    PASS = "pass"
    FAIL = "fail"
    STOPPED = "stopped"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for CUDA that the rewritten program still makes.

    Attributes:
        place: the line that makes it.
        call: the name of the call.
        count: the number of times.
        library: the library that the line calls and that makes the request, or None.
        errors: the errors that the requests raised.
    """

    place: Location
    call: str
    count: int
    library: str | None = None
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyHazard:
    """Memory that CUDA would have copied, and that changed while both sides were in use.

    Attributes:
        what: what shares the memory: "tensor", "numpy view" or "numpy buffer".
        move: the call that copies on CUDA.
        moved: the line of that call.
        changed: the line that changes one side, or None if it is unknown.
    """

    what: str
    move: str
    moved: Location
    changed: Location | None


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that ended a program.

    Attributes:
        error: the type and the first line of the message.
        frames: the lines of the program in its traceback, outermost first; without those of libraries.
        message: the message.
        bases: the types that the error's type is derived from.
        before: the errors that it was raised from, or while they were handled, the latest first.
        library: the package in which it was raised; empty for the program itself, and for compiled code that
            the program calls.
    """

    error: str
    frames: tuple[Location, ...] = ()
    message: str = ""
    bases: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    library: str = ""

    @property
    def kind(self) -> str:
        """The name of the error's type, without its module."""
        return self.error.partition(":")[0].rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Module:
    """The lines with fixes of a module that the rewrite changes.

    Attributes:
        file: its path.
        imported: whether the program imported it, or ran it as a script.
        ran: the lines whose fixes all ran.
        not_run: the other lines.
        fixes: the fixes in these lines.
    """

    file: str
    imported: bool
    ran: tuple[int, ...]
    not_run: tuple[int, ...]
    fixes: tuple[Seen, ...] = ()

    @classmethod
    def of(cls, file: str, imported: bool, fixes: tuple[Seen, ...]) -> Module:
        """Return the module with these fixes."""
        missed = {fix.line for fix in fixes if not fix.is_seen}
        lines = sorted({fix.line for fix in fixes} - missed)
        return cls(file, imported, tuple(lines), tuple(sorted(missed)), fixes)

    @property
    def lines(self) -> int:
        """The number of lines with fixes."""
        return len(self.ran) + len(self.not_run)


@dataclass(slots=True)
class Run:
    """The result of one run of the program.

    Attributes:
        verdict: the verdict on this run alone.
        reason: the reason in one line.
        seconds: the duration.
        status: the exit status; the negative number of the signal if one ended the program.
        limit: the limit that stopped it: "timeout", "memory" or "steps".
        steps: the number of optimizer steps, in the process that took most.
        failure: the error that ended it.
        requests: the requests for CUDA, the most frequent first.
        copies: the copy hazards.
        ran: the lines with fixes that ran.
        not_run: the lines with fixes that did not run, in modules that were imported.
        modules: the rewritten modules, with the lines that ran.
        warnings: problems of the watches, and a line that ends the program during an import.
    """

    verdict: Verdict = Verdict.PASS
    reason: str = ""
    seconds: float = 0.0
    status: int = 0
    limit: str | None = None
    steps: int = 0
    failure: Failure | None = None
    requests: list[Request] = field(default_factory=list)
    copies: list[CopyHazard] = field(default_factory=list)
    ran: list[Location] = field(default_factory=list)
    not_run: list[Location] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judge(ended: Ended, events: Iterable[dict[str, Any]], program: Program) -> Run:
    """Give a verdict on a run.

    Args:
        ended: how the run ended.
        events: the events that it recorded.
        program: the program that was run.
    """
    events = list(events)
    run = Run(seconds=ended.seconds, status=ended.status, modules=_modules(events, program))
    run.steps = max((e["steps"] for e in events if e["kind"] == "step"), default=0)
    run.limit = ended.limit or ("steps" if any(e["kind"] == "stopped" for e in events) else None)
    run.requests = _requests(events)
    run.copies = _hazards(events)
    run.ran = [Location(each.file, line) for each in run.modules for line in each.ran]
    imported = (each for each in run.modules if each.imported)
    run.not_run = [Location(each.file, line) for each in imported for line in each.not_run]
    run.warnings = _warnings(events)
    if ended.status and not ended.limit:
        run.failure = _failure(events, ended.status, program)
    watched = any(e["kind"] == "process" for e in events)
    run.verdict, run.reason = _verdict(run, ended) if watched else (Verdict.TROUBLE, _unwatched(ended))
    return run


def _verdict(run: Run, ended: Ended) -> tuple[Verdict, str]:
    if ended.limit:
        return Verdict.STOPPED, f"the run reached the {ended.limit} limit after {ended.seconds:.0f} s"
    if ended.status:
        raised = run.failure is not None and run.failure.kind != EXIT
        return Verdict.FAIL, run.failure.error if run.failure and raised else ended_by(ended.status)
    if any(request.library is None for request in run.requests):
        return Verdict.FAIL, "the program still requests CUDA"
    if run.copies:
        return Verdict.FAIL, "copy hazard: memory that CUDA would copy is shared and changed on a CPU"
    if run.limit:
        return Verdict.STOPPED, "the run reached the limit on optimizer steps without an error"
    return Verdict.PASS, ""


def _unwatched(ended: Ended) -> str:
    if ended.status == NOT_FOUND and os.name == "posix":
        return "the command was not found"
    return "the command started no Python process that devicefix could watch"


def ended_by(status: int) -> str:
    """Describe an exit status.

    Args:
        status: the exit status; the negative number of the signal if one ended the process.
    """
    if status > 255:  # on Windows, which has numbers such as that of an access violation
        return f"the program ended with exit status 0x{status:08X}"
    if status > 128 and os.name == "posix":  # how a shell reports that a signal ended its command
        status = 128 - status
    if status >= 0:
        return f"the program ended with exit status {status}"
    return f"the program was terminated by {signal_of(status) or f'signal {-status}'}"


def signal_of(status: int) -> str:
    """Return the name of the signal that ended a program with an exit status; empty if none did."""
    try:
        return signal.Signals(-status if status < 0 else status - 128).name
    except ValueError:
        return ""


def _failure(events: list[dict[str, Any]], status: int, program: Program) -> Failure | None:
    """Return the first error, since it caused those of other processes, or where the program ended itself."""
    errors = (event for event in events if event["kind"] == "error")
    ends = (event for event in events if event["kind"] == "exit" and event["status"] == status)
    event = next(chain(errors, ends), None)
    if event is None:
        return None
    message = event.get("message", "")
    frames = [Location(f["file"], f["line"], f["function"]) for f in event["frames"]]
    # the error of a worker process is text in the message
    frames += [Location(m["file"], int(m["line"]), m["function"] or "") for m in _FRAME.finditer(message)]
    own = tuple(frame for frame in frames if _inside(frame.file, program.roots))
    if event["kind"] == "exit":
        return Failure(f"{EXIT}: {status}", own, library=_library(frames, own))
    error, bases = _error(event["type"], message), tuple(event.get("bases", ()))
    before = tuple(_error(e["type"], e["message"]) for e in event.get("before", ()))
    return Failure(error, own, message[:_LONGEST], bases, before, _library(frames, own))


def _library(frames: list[Location], own: tuple[Location, ...]) -> str:
    """Return the package of the innermost frame; empty if that is the program's."""
    return _package(frames[-1].file) if frames and frames[-1] not in own else ""


def _package(path: str) -> str:
    """Return the name of the installed package that a file belongs to; empty for any other file."""
    inside = re.split(r"[\\/](?:site|dist)-packages[\\/]", path)[1:]
    return re.split(r"[\\/]", inside[-1])[0].removesuffix(".py") if inside else ""


def _error(kind: str, message: str) -> str:
    """Return an error in one line; if it wraps a traceback of another process, the error of that process."""
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
    found: dict[tuple[str, int, str, str | None], list[str]] = defaultdict(list)
    for event in events:
        if event["kind"] == "request":
            error = event.get("error")
            raised = _error(error["type"], error["message"]) if error else ""
            found[event["file"], event["line"], event["call"], event["library"]].append(raised)
    return [
        Request(Location(file, line), call, len(raised), library, tuple(dict.fromkeys(filter(None, raised))))
        for (file, line, call, library), raised in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def _hazards(events: list[dict[str, Any]]) -> list[CopyHazard]:
    found = {}
    for event in events:
        if event["kind"] == "copy":
            moved = Location(event["moved"]["file"], event["moved"]["line"])
            changed = event["changed"] and Location(event["changed"]["file"], event["changed"]["line"])
            found[moved, changed] = CopyHazard(event["what"], event["move"], moved, changed)
    return list(found.values())


def _modules(events: list[dict[str, Any]], program: Program) -> list[Module]:
    """Return the rewritten modules, with the lines that ran."""
    imported = {e["file"] for e in events if e["kind"] == "module"}
    ran = {(e["file"], place) for e in events if e["kind"] == "fix" for place in e["places"]}
    found = []
    for path, module in sorted(program.modules.items()):
        parts = ((path, number) in ran for number in count())
        runs = tuple(Seen(*fix[:3], tuple(islice(parts, len(fix.places)))) for fix in module.fixes)
        found.append(Module.of(path, path in imported, runs))
    return found


def _warnings(events: list[dict[str, Any]]) -> list[str]:
    troubles = (e for e in events if e["kind"] == "trouble")
    ended = (e for e in events if e["kind"] == "ended import")
    found = [f"could not watch {e['where']}: {e['message']}" for e in troubles]
    found += [f"{e['file']}:{e['line']} ends the program during an import" for e in ended]
    return [*dict.fromkeys(found)]
