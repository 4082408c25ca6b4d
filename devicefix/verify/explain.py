"""The cause of a verdict that is not a pass, with the evidence for it."""

from __future__ import annotations

import re
from collections.abc import Callable

from devicefix.config.settings import Settings
from devicefix.verify import fixes, known, left, texts, tried
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.case import Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.verdict import NOT_FOUND, Verdict, signal_of

_NEEDS_GPUS = re.compile(r"(?i)\bgpus?\b|device ordinal")
_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGQUIT")


def explain(case: Case) -> Explanation:
    """Return the cause of a verdict that is not a pass.

    Args:
        case: the run that has the verdict.
    """
    deciders: tuple[Callable[[Case], Explanation | None], ...] = (
        _not_run_to_its_end,
        _without_error,
        _ended_from_outside,
        lambda case: fixes.blamed(case, left.request(case)),
        texts.syntax,
        texts.name_of_a_fix,
        texts.text,
        texts.precision,
    )
    return next(filter(None, (decide(case) for decide in deciders)), None) or tried.tried(case)


def _not_run_to_its_end(case: Case) -> Explanation | None:
    if case.run.verdict is Verdict.TROUBLE:
        if case.run.status == NOT_FOUND:
            return Explanation(Cause.UNWATCHED, "check that the command is installed and spelled correctly")
        advice = (
            "use a command that starts Python without `-E` or `-I` and passes on its environment variables"
        )
        return Explanation(Cause.UNWATCHED, advice, ("no Python process reported to devicefix",))
    if case.run.verdict is not Verdict.STOPPED:
        return None
    limit = case.run.limit
    advice = {
        "steps": "to verify the rest of the program, raise or omit `--steps`",
        "memory": "raise `--memory`, or use less data",
        "timeout": "raise `--timeout`, use less data, or add `--steps N`",
    }[limit or "timeout"]
    return Explanation(Cause.LIMIT, advice, (f"`--{limit}` ended the run before any error occurred",))


def _without_error(case: Case) -> Explanation | None:
    if case.run.status:
        return None
    if case.requests:
        return fixes.blamed(case, left.tie_left(case, case.requests))
    return tried.copy(case.run.copies[0])


def _ended_from_outside(case: Case) -> Explanation | None:
    name = signal_of(case.run.status)
    if case.run.failure is not None and case.failure.kind == "KeyboardInterrupt":
        name = "SIGINT"
    if name not in _FROM_OUTSIDE:
        return None
    killed = " (which Linux sends if memory runs out)" if name == "SIGKILL" else ""
    advice = "run it again, with less data if memory ran out" if killed else "run it again"
    return Explanation(Cause.ENDED, advice, (f"the program was terminated by {name}{killed}",))


def explain_comparison(comparison: Comparison, settings: Settings) -> Explanation | None:
    """Return the cause of a difference that `--compare` found; None if there is none.

    Args:
        comparison: the comparison.
        settings: the settings of the rewrite.
    """
    machine = "the simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
    if comparison.failure:
        rewritten = "fails in the same way" if comparison.alike else "does not fail in the same way"
        advice = "correct the original program if it also fails on a GPU"
        if comparison.machine == "simulated":
            advice = _on_simulated(comparison.failure, advice)
        fails = f"on {machine}, the original fails: {comparison.failure}"
        return Explanation(Cause.ORIGINAL_ON_CUDA, advice, (fails, f"the rewritten program {rewritten}"))
    if comparison.on_cuda and comparison.accelerator:
        advice = "check how this line depends on the device; if devicefix changed the line, please report it"
        there = f"on a simulated {comparison.accelerator.upper()}, {_first_of(comparison.on_cuda)}"
        return Explanation(Cause.DIFFERS_ON_ACCELERATOR, advice, (there,))
    if comparison.on_cuda:
        advice = "please report this, including the lines above; meanwhile, add `# noqa` to the fixed line"
        if settings.unsafe_fixes:
            advice = "omit `--unsafe-fixes`, or review the unsafe fixes"
        return Explanation(Cause.CHANGES_CUDA, advice, (f"on {machine}, {_first_of(comparison.on_cuda)}",))
    if comparison.on_cpu:
        hint = comparison.hints[0] if comparison.hints else "check the line above"
        evidence = f"on {machine}, both programs behave the same; {_first_of(comparison.on_cpu)}"
        return Explanation(Cause.DIFFERS_ON_CPU, hint, (evidence,))
    return None


def _on_simulated(failure: str, advice: str) -> str:
    """Return what to do if the original fails on the simulated machine, which may be why it does."""
    if known.first(failure, "beside"):
        return "verify without `--compare`, because only PyTorch's part of CUDA is simulated"
    if known.first(failure, "package"):
        return "install the missing package, or verify without `--compare`"
    more = "try more GPUs (`devicefix verify --gpus N`)"
    if _NEEDS_GPUS.search(failure):
        return f"{more}; if that does not help, {advice}"
    return f"{advice}; if not, {more}, or verify without `--compare`"


def _first_of(descriptions: list[str]) -> str:
    more = f" (and {len(descriptions) - 1} more)" if len(descriptions) > 1 else ""
    return descriptions[0] + more
