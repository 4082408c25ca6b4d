"""The last lines of a run: how much was found, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable

from devicefix.model import Finding, Result, Safety


def checked(results: list[Result], failed: int) -> str:
    """What `check` found, and how many files it failed on."""
    findings = [finding for result in results for finding in result.findings]
    where = sum(bool(result.findings) for result in results)
    found = f"Found {_findings(len(findings))} in {where} of" if findings else "Nothing found in"
    return "\n".join([f"{found} {_files(len(results))}{_failed(failed)}.", *_fixable(findings)])


def rewritten(results: list[Result], failed: int, written: bool) -> str:
    """What `rewrite` did, or would do where nothing was written, and how many files it failed on."""
    fixed = sum(len(result.fixed) for result in results)
    remaining = [finding for result in results for finding in result.remaining]
    if not fixed and not remaining:
        return f"Nothing found in {_files(len(results))}{_failed(failed)}."
    done = "Nothing to fix"
    if fixed:
        changed = _files(sum(result.output is not None for result in results))
        done = f"{'Fixed' if written else 'Would fix'} {_findings(fixed)} in {changed}"
        done += "" if written else " (write them with --in-place)"
    unsafe = _count(remaining, Safety.UNSAFE)
    more = f", {unsafe} of them fixable with --unsafe-fixes" if unsafe else ""
    verb = "remains" if len(remaining) == 1 else "remain"
    return f"{done}; {_findings(len(remaining))} {verb}{more}{_failed(failed)}."


def _fixable(findings: list[Finding]) -> Iterable[str]:
    safe, unsafe = _count(findings, Safety.SAFE), _count(findings, Safety.UNSAFE)
    if safe:
        more = f", {unsafe} more with --unsafe-fixes" if unsafe else ""
        yield f"[*] {safe} fixable with `devicefix rewrite --in-place`{more}."
    elif unsafe:
        yield f"{unsafe} fixable with `devicefix rewrite --in-place --unsafe-fixes`."


def _count(findings: list[Finding], safety: Safety) -> int:
    return sum(finding.safety is safety for finding in findings)


def _findings(number: int) -> str:
    return f"{number} finding{'' if number == 1 else 's'}"


def _files(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


def _failed(number: int) -> str:
    return f"; {_files(number)} failed, see the errors" if number else ""
