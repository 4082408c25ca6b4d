"""The summary at the end of a run: the number of findings, and the option that fixes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from devicefix.config.resolver import Resolver
from devicefix.model import Outcome
from devicefix.report.wording import count

UNPROVEN = "The rewritten code was not run. To test it, use `devicefix verify` or `devicefix migrate --run`."


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers of a run, the same for every command and format.

    Attributes:
        files: the number of files that were checked.
        with_findings: the number of files with findings.
        changed: the number of files that fixes change.
        failed: the number of files that could not be checked or written.
        fixed: the number of findings that are fixed.
        remaining: the number of findings that remain.
        fixable: the number of remaining findings that `--fix` would fix.
        unsafe: the number of remaining findings that it would fix with `--unsafe-fixes` only.
        hidden: the number of findings that `--unfixed` hides; None without it.
        of_lines: whether they are those of some lines, although fixes apply to whole files.
    """

    files: int
    with_findings: int
    changed: int
    failed: int
    fixed: int
    remaining: int
    fixable: int
    unsafe: int
    hidden: int | None = None
    of_lines: bool = False

    @staticmethod
    def of(outcomes: Sequence[Outcome], failed: int, resolver: Resolver) -> Totals:
        """Return the numbers of a run.

        Args:
            outcomes: the checked files.
            failed: the number of the other files.
            resolver: the settings of each file.
        """
        results = [outcome.result for outcome in outcomes]
        left = [finding for result in results for finding in result.remaining]
        unsafe = ((each.result.remaining, resolver.of(each.path).unsafe_fixes) for each in outcomes)
        fixable = sum(finding.is_fixable(allowed) for remaining, allowed in unsafe for finding in remaining)
        return Totals(
            files=len(results),
            with_findings=sum(bool(result.findings) for result in results),
            changed=sum(result.output is not None for result in results),
            failed=failed,
            fixed=sum(len(result.fixed) for result in results),
            remaining=len(left),
            fixable=fixable,
            unsafe=sum(finding.is_fixable(unsafe_fixes=True) for finding in left) - fixable,
        )

    def hiding(self, every: Totals) -> Totals:
        """Return the numbers for `--unfixed`.

        Args:
            every: the numbers with all findings.
        """
        return replace(self, hidden=every.remaining - self.remaining)

    @property
    def found(self) -> int:
        """The number of findings before any was fixed."""
        return self.fixed + self.remaining

    def checked(self) -> str:
        """Return the summary of `devicefix check`."""
        left = "" if self.hidden is None else " that `--fix` leaves"
        files = f"{self.with_findings} of {count(self.files, 'file')}"
        found = f"Found {count(self.found, 'finding')}{left} in {files}{self._failed}."
        return "\n".join([found if self.found else f"{self._nothing}{left}.", *self._fixable()])

    def fixed_and_checked(self) -> str:
        """Return the summary of `devicefix check --fix`."""
        if not self.fixed:
            return self.checked()
        parts = f"({self.fixed} fixed, {self.remaining} remaining)"
        found = f"Found {count(self.found, 'finding')} {parts}{self._failed}."
        return "\n".join([found, *self._fixable()])

    def only_fixed(self, written: bool) -> str:
        """Return the summary of `devicefix check --fix-only`, or of `--diff` if nothing is written."""
        if not self.fixed:
            return f"Nothing to fix in {count(self.files, 'file')}{self._failed}."
        return f"{self._done(written)}{self._failed}."

    def rewritten(self, written: bool, verified: bool = False) -> str:
        """Return the summary of `devicefix rewrite`.

        Args:
            written: whether the fixes were written, rather than only shown.
            verified: whether a run has tested them.
        """
        if not self.found:
            return f"{self._nothing}."
        done = f"{self._done(written)} in {count(self.changed, 'file')}" if self.fixed else "Nothing to fix"
        done += "" if written or not self.fixed else " (apply with --in-place)"
        hint = f", {self.unsafe} of them fixable with --unsafe-fixes" if self.unsafe else ""
        verb = "remains" if self.remaining == 1 else "remain"
        summary = f"{done}; {count(self.remaining, 'finding')} {verb}{hint}{self._failed}."
        return f"{summary}\n{UNPROVEN}" if self.fixed and not verified else summary

    def _done(self, written: bool) -> str:
        return f"{'Fixed' if written else 'Would fix'} {count(self.fixed, 'finding')}"

    @property
    def _nothing(self) -> str:
        return f"Nothing found in {count(self.files, 'file')}{self._failed}"

    def _fixable(self) -> Iterable[str]:
        if self.fixable and self.of_lines:
            yield f"[*] {self.fixable} fixable with `check --fix`, which also fixes unchanged lines."
        elif self.fixable:
            more = f", {self.unsafe} more with `--unsafe-fixes`" if self.unsafe else ""
            yield f"[*] {self.fixable} fixable with `--fix`{more}."
        elif self.unsafe:
            yield f"{self.unsafe} fixable with `--fix --unsafe-fixes`."
        if self.hidden:
            yield f"Not shown: {self.hidden} fixable with `--fix`."
        elif self.fixable and self.fixable < self.remaining:
            left = count(self.remaining - self.fixable, "finding")
            yield f"To show only the {left.removeprefix('1 ')} that `--fix` leaves, use `--unfixed`."

    @property
    def _failed(self) -> str:
        return f"; {count(self.failed, 'file')} failed (see the errors)" if self.failed else ""
