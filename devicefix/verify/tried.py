"""The cause of an error that runs on the simulated CUDA machine show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from devicefix.verify.case import SHOWN, Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.left import tie_left
from devicefix.verify.places import place as shown
from devicefix.verify.trials import alike, passed, works
from devicefix.verify.verdict import EXIT, CopyHazard, Location, Run

# What the simulated machine, which computes on the CPU, may do differently than CUDA.
DEVICES = re.compile(
    r"(?i)\b(cuda|gpus?|cpu|half|bfloat16|float8\w*|triton)\b|not implemented for|active drivers|torch\._C\b"
)
_PYTHON = re.compile(r"^(TypeError: .*\bargument|KeyError|IndexError|AttributeError: '\w+' object)")
_MIXED = re.compile(r"on the same device|can't convert cuda|Expected .* device type")


def tried(case: Case) -> Explanation:
    """Run the original on the simulated CUDA machine, and return the cause that the result shows.

    Args:
        case: the run, which nothing else explains.
    """
    trials = case.trials
    if refused := trials.refused:
        if case.run.failure is None and case.requests:  # as of a test suite
            return tie_left(case, case.requests)
        return _unknown(case, f"the original was not run on the simulated CUDA machine: {refused}")
    original = trials.original
    if original.limit and not passed(original):
        return _unknown(case, "the original reached a limit on the simulated CUDA machine")
    if passed(original):
        return _on_this_machine(case)
    if _mixes_devices(case.run, original):
        there = f"the original also fails at this line on the simulated CUDA machine: {original.reason}"
        return Explanation(Cause.ORIGINAL, "correct the original program first", (there,))
    return _fails_too(case, original)


def _fails_too(case: Case, original: Run) -> Explanation:
    """Explain an error if the original has one on the simulated machine, too."""
    ties = case.ties(case.cause)
    if number := case.trials.gpus():
        needed = f"the original runs on a simulated CUDA machine with {number} GPUs, but not with one"
        advice = ties[0].advice if ties else "make the program work with fewer GPUs, and without a GPU"
        return Explanation(Cause.TIE, advice, (needed,), ties)
    if not alike(case.run, original):
        other = f"the original fails differently on the simulated CUDA machine: {original.reason}"
        return _unknown(case, other)
    error = "the same error" if case.run.failure else f"exit status {case.run.status}"
    time = f"({case.trials.runs.seconds:.1f} s)"
    evidence = f"the original ends with {error} on the simulated CUDA machine {time}"
    if ties:
        return Explanation(Cause.TIE, ties[0].advice, (evidence,), ties)
    if not _is_simulated(case):
        blind = ["the simulation computes on the CPU, so CUDA may differ"] if case.run.failure else []
        return _unknown(case, evidence, *blind)
    return Explanation(Cause.ORIGINAL, "correct the original program first", (evidence,))


def _mixes_devices(run: Run, original: Run) -> bool:
    """Return whether the original fails at the same line, by an error in its use of devices."""
    if run.failure is None or original.failure is None or not run.failure.frames:
        return False
    same_line = run.failure.frames[-1:] == original.failure.frames[-1:]
    return same_line and bool(_MIXED.search(original.failure.error))


def _is_simulated(case: Case) -> bool:
    """Return whether the simulated machine fails as CUDA does."""
    if case.run.failure is None:
        return case.run.status < 0  # a signal; only the output shows the errors of a test suite
    if case.failure.kind == EXIT:
        return bool(case.frames)
    python = case.raises or bool(_PYTHON.search(case.failure.error))
    return python or not DEVICES.search(f"{case.failure.library}: {case.failure.error}")


def _on_this_machine(case: Case) -> Explanation:
    """Explain an error that the original does not have on the simulated machine."""
    ran = "the original runs without this error on the simulated CUDA machine"
    rewritten = case.trials.rewritten()
    time = f"({case.trials.runs.seconds:.1f} s for both)"
    if not passed(rewritten) and not rewritten.limit:
        return wrong_fix(case, f"{ran}, but the rewritten program fails there {time}: {rewritten.reason}")
    evidence = (f"{ran}, and so does the rewritten program {time}",)
    if case.run.copies:
        return copy(case.run.copies[0], *evidence)
    if ties := case.ties(case.cause):
        return Explanation(Cause.TIE, ties[0].advice, evidence, ties)
    if passed(case.trials.again()):
        varies = "a second run on the CPU has no error, so the program's behavior varies"
        return _unknown(case, *evidence, varies)
    if asked := [request for request in case.requests if case.ties([request.place])]:
        return tie_left(case, asked, *evidence)
    if _suspects(case) and works(case.trials.answered()):
        answered = "the original also runs on the CPU if the CPU handles its requests for CUDA"
        return wrong_fix(case, *evidence, answered)
    if ties := case.ties(case.frames):
        return Explanation(Cause.TIE, ties[0].advice, evidence, ties)
    return _without_finding(case, *evidence)


def _without_finding(case: Case, *evidence: str) -> Explanation:
    """Explain an error on whose lines no findings are left."""
    if case.requests:
        return tie_left(case, case.requests, *evidence)
    imported = [module.file for module in case.run.modules if module.imported]
    if ties := case.ties_in([at.file for at in case.frames] or imported):
        left = "no findings remain on the lines of the error, but these remain in the program's modules"
        return Explanation(Cause.TIE, ties[0].advice, (*evidence, left), ties)
    advice = "in the lines of the traceback, look for code that depends on the device"
    advice += "; if it refers to CUDA or a GPU, please report it, because no finding covers it"
    return Explanation(Cause.TIE, advice, (*evidence, "no findings remain on the lines of the error"))


def copy(hazard: CopyHazard, *more: str) -> Explanation:
    """Return the explanation of a copy hazard.

    Args:
        hazard: the hazard.
        *more: further evidence.
    """
    at = shown(hazard.moved)
    evidence = f"on a CPU, {at} copies nothing, and the program later changes the shared memory"
    advice = f"add `.clone()` after `{hazard.move}`, or `.copy()` if the result is a NumPy array"
    return Explanation(Cause.COPY, advice, (*more, evidence))


def wrong_fix(case: Case, *evidence: str, at: Sequence[Location] = ()) -> Explanation:
    """Return the explanation of an error that a fix causes.

    Args:
        case: the run.
        *evidence: what shows that it does.
        at: the lines of the fix, if they are known.
    """
    fixes = list(dict.fromkeys(_fixes(case, at) or _suspects(case)))
    if not fixes:
        return _unknown(case, *evidence)
    codes = dict.fromkeys(code for _, code in fixes)
    where = ", ".join(f"{shown(place)} ({code})" for place, code in fixes[:SHOWN])
    file = shown(fixes[0][0]).rpartition(":")[0]
    return Explanation(
        Cause.FIX,
        f"please report this, including the output of `devicefix rewrite --select {','.join(codes)} {file}`;"
        f" meanwhile, use `--ignore {','.join(codes)}` or add a `# noqa` comment to the line",
        (*evidence, f"the fix is {'' if len(fixes) == 1 else 'one of those '}at {where}"),
    )


def _fixes(case: Case, places: Sequence[Location]) -> list[tuple[Location, str]]:
    return [(at, finding.code) for at in places for finding in case.fixed(at)]


def _suspects(case: Case) -> list[tuple[Location, str]]:
    """Return the lines and rules of the fixes that may be wrong: those in the traceback, or else all."""
    modules = case.program.modules.items()
    fixed = ((file, finding) for file, module in modules for finding in module.fixed)
    return _fixes(case, case.frames) or [(Location(file, each.line), each.code) for file, each in fixed]


def _unknown(case: Case, *evidence: str) -> Explanation:
    advice = "run the original program on a machine with CUDA; if it fails in the same way, correct it first"
    if case.run.failure is None:
        advice = f"check the program's own output; {advice}"
    return Explanation(Cause.UNKNOWN, advice, evidence)
