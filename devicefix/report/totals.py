"""The summary at the end of a run: the number of findings, and the command that fixes them."""

from __future__ import annotations

from collections.abc import Iterable

from devicefix.model import Finding, Result, Safety
from devicefix.report.wording import count


def checked(results: list[Result], failed: int) -> str:
    """Return the summary of `devicefix check`.

    Args:
        results: the results of the checked files.
        failed: the number of files that could not be checked.
    """
    findings = [finding for result in results for finding in result.findings]
    with_findings = sum(bool(result.findings) for result in results)
    found = (
        f"Found {count(len(findings), 'finding')} in {with_findings} of" if findings else "Nothing found in"
    )
    return "\n".join([f"{found} {count(len(results), 'file')}{_failed(failed)}.", *_fixable(findings)])


def rewritten(results: list[Result], failed: int, written: bool) -> str:
    """Return the summary of `devicefix rewrite`.

    Args:
        results: the results of the checked files.
        failed: the number of files that could not be checked or written.
        written: whether the fixes were written, rather than only shown.
    """
    fixed = sum(len(result.fixed) for result in results)
    remaining = [finding for result in results for finding in result.remaining]
    if not fixed and not remaining:
        return f"Nothing found in {count(len(results), 'file')}{_failed(failed)}."
    done = "Nothing to fix"
    if fixed:
        changed = count(sum(result.output is not None for result in results), "file")
        done = f"{'Fixed' if written else 'Would fix'} {count(fixed, 'finding')} in {changed}"
        done += "" if written else " (apply with --in-place)"
    unsafe = _count_safety(remaining, Safety.UNSAFE)
    hint = f", {unsafe} of them fixable with --unsafe-fixes" if unsafe else ""
    verb = "remains" if len(remaining) == 1 else "remain"
    return f"{done}; {count(len(remaining), 'finding')} {verb}{hint}{_failed(failed)}."


def _fixable(findings: list[Finding]) -> Iterable[str]:
    safe, unsafe = _count_safety(findings, Safety.SAFE), _count_safety(findings, Safety.UNSAFE)
    if safe:
        more = f", {unsafe} more with --unsafe-fixes" if unsafe else ""
        yield f"[*] {safe} fixable with `devicefix rewrite --in-place`{more}."
    elif unsafe:
        yield f"{unsafe} fixable with `devicefix rewrite --in-place --unsafe-fixes`."


def _count_safety(findings: list[Finding], safety: Safety) -> int:
    return sum(finding.safety is safety for finding in findings)


def _failed(number: int) -> str:
    return f"; {count(number, 'file')} failed, see the errors" if number else ""
