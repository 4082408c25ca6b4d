"""Ties to CUDA that are left: requests for CUDA that the rewritten program makes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, starmap
from pathlib import Path

from devicefix.config.resolver import Everywhere
from devicefix.files.kinds import language_of
from devicefix.runner.configurations import selected
from devicefix.runner.find import find_files
from devicefix.verify.case import SHOWN, Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.places import place as shown
from devicefix.verify.places import shown_path, source
from devicefix.verify.runtime.no_cuda import NO_CUDA
from devicefix.verify.verdict import Location, Request

_CUDA = re.compile(r"(?<![\w/.])(?<!no-)cuda(:\d+)?(?![\w/.])")
_CONFIGURED = "DF207"  # the rule for devices out of configuration files
# A line that passes a device to what it calls, which then only uses it.
_PASSES_DEVICE = re.compile(r"\.(?:to|to_empty|cuda)\(|\bdevice[ \t]*=")


def request(case: Case) -> Explanation | None:
    """Explain an error that a request for CUDA raised, or that its answer may have led to."""
    if case.task.keep_going and case.requests:
        ran = "these requests ran on the CPU instead, which may have caused the error"
        return tie_left(case, case.requests, ran)
    if case.run.failure is None:
        return None
    errors = {case.failure.error, *case.failure.before}
    raised = [request for request in case.run.requests if errors.intersection(request.errors)]
    places = {(at.file, at.line) for at in case.frames}
    # two lines may raise the same error: one that the program caught, and the one that ended it
    raised = [r for r in raised if (r.place.file, r.place.line) in places] or raised
    if not raised:
        return _refused(case)
    own = [r for r in raised if r.library is None or _PASSES_DEVICE.search(source(r.place))]
    if not own:
        return _library(case, raised[0].place, str(raised[0].library))
    return tie_left(case, own)


def _refused(case: Case) -> Explanation | None:
    """Explain an error of torch without CUDA that the watch of requests has not seen."""
    text = "\n".join((case.failure.error, *case.failure.before))
    if not NO_CUDA.search(text) or not case.frames or case.raises:
        return None
    library = None if case.failure.library in ("", "torch") else case.failure.library
    case.run.requests.append(Request(case.frames[0], "a CUDA device", 1, library))
    at = case.frames[0]
    return _library(case, at, library) if library else tie_left(case, [Request(at, "", 1)])


def tie_left(case: Case, requests: list[Request], *more: str) -> Explanation:
    """Return the explanation of requests for CUDA.

    Args:
        case: the run.
        requests: the requests of its own lines that matter.
        *more: further evidence.
    """
    places = [request.place for request in requests]
    asked = [(each.place, f" with `{each.call}`" if each.call else "") for each in requests[:SHOWN]]
    evidence = [f"{shown(place)} requests CUDA{call}: {source(place)}" for place, call in asked]
    ties = case.ties([*places, *case.frames])
    of_file = ties and ties[0].finding.code == _CONFIGURED and ties[0].finding.safety is None
    if ties and not of_file:
        return Explanation(Cause.TIE, ties[0].advice, (*evidence, *more), ties)
    if any(case.fixed(place) for place in places):
        evidence.append("the line is rewritten, but still receives a CUDA device")
    if words := [pair for pair in pairwise(case.task.command) if _CUDA.search(pair[1])]:
        evidence.append(f"the program's arguments request CUDA: `{' '.join(word for _, word in words)}`")
        return Explanation(Cause.TIE, "; ".join(starmap(_on_a_cpu, words)), (*evidence, *more))
    if configured := _configured(case):
        evidence.append(f"the device may come from {configured[0]}")
        evidence += configured[1:]
        key = configured[0].partition("(`")[2].partition(":")[0]
        advice = f"set `{key}` to `cpu` there, or pass `{key}=cpu` if the program accepts this argument"
        return Explanation(Cause.TIE, advice, (*evidence, *more), ties)
    ties = case.ties_in(place.file for place in places)
    evidence.append("the device may come from the lines below" if ties else "no finding explains the device")
    advice = (
        "find the source of the device, such as a default, a file or an environment variable, and use the"
        " device only if CUDA is available; to check configuration files, run"
        " `devicefix check --config-files`"
    )
    return Explanation(Cause.TIE, advice, (*evidence, *more), ties)


def _on_a_cpu(before: str, word: str) -> str:
    """Return what to pass instead of an argument that requests CUDA, given the word before it."""
    if word.startswith("-") and "=" not in word:
        return f"omit `{word}`"
    option = f"{before} " if before.startswith("--") and "=" not in before else ""
    return f"pass `{option}{_CUDA.sub('cpu', word)}`"


def _configured(case: Case) -> list[str]:
    """Return the lines of the program's configuration files that select CUDA."""
    found = []
    resolver = Everywhere(replace(case.resolver.root, config_files=True, quiet=True))
    for file in find_files(map(Path, case.program.roots), resolver, lambda _: None):
        if language_of(str(file)) in ("yaml", "json", "toml") and ".hydra" not in file.parts:
            name, values = shown_path(str(file)), selected(str(file))
            found += [f"{name}:{line} (`{path}: {value}`)" for _, line, value, path in values]
    return found[:SHOWN]


def _library(case: Case, at: Location, name: str) -> Explanation:
    ties = case.ties([at])
    evidence = (f"{shown(at)} calls {name}, which requests CUDA: {source(at)}",)
    if ties:
        return Explanation(Cause.TIE, ties[0].advice, evidence, ties)
    advice = f"check whether {name} has a setting for the device, or call it only if CUDA is available"
    return Explanation(Cause.CPU, advice, evidence)
