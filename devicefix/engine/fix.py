"""Make the fixes of a module: choose those that go together, apply them, and check the result."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING

from devicefix.files.positions import Place, moved_finding
from devicefix.files.text import LINE_END, Change, Source, replaced
from devicefix.model import Edit, Finding, Fix, Result, Safety, SelfCheckError, Span
from devicefix.rewrite.edits import Shift, Spans, joined, resolved

ROUNDS = 10  # of fixes that make others possible; three have been seen

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.devices.choose import Devices
    from devicefix.facts.project import Project


def fix_until_stable(
    findings: list[Finding], devices: Devices, settings: Settings, project: Project
) -> Result:
    """Make the fixes of a module, and those that they make possible, until nothing changes.

    Args:
        findings: the module's findings.
        devices: what their fixes rely on.
        settings: which fixes are wanted.
        project: the facts of all files.

    Returns:
        The remaining findings at their places in the new source, the fixed ones at theirs in the old source.
        A finding that is resolved by the fix of another one is fixed, too.

    Raises:
        SelfCheckError: a fix would break the module.
    """
    first = fix_once(findings, devices, settings)
    if first.output is None:
        return first
    path = devices.path
    fixed, output = list(first.fixed), first.output
    source = devices.facts.source
    origins, made = first.origins, list(first.made)
    for _ in range(ROUNDS):
        moved = replace(settings, evidence=settings.evidence.moved(path, origins))
        after = recheck(output, path, moved, project)
        if after.output is None:
            result = Result(path, fixed + after.findings, fixed, output, origins, made)
            return _with_resolved(result, findings, first, source)
        fixed += at_origin(after.fixed, source, origins)
        origins = [origins[line] for line in after.origins]
        shift = Shift(after.changes)
        made = [*(tuple(starmap(shift.span, spans)) for spans in made), *after.made]
        output = after.output
    # The fixes undo each other: the first round is as good as any.
    moved = replace(settings, fix=False, evidence=settings.evidence.moved(path, first.origins))
    after = recheck(first.output, path, moved, project)
    result = replace(first, findings=first.fixed + after.findings)
    return _with_resolved(result, findings, first, source)


def _with_resolved(result: Result, findings: list[Finding], first: Result, source: Source) -> Result:
    """Return the result of all rounds, in which the findings that other fixes have resolved are fixed, too.

    Args:
        result: the result of all rounds.
        findings: the findings of the old source.
        first: the result of the first round.
        source: the old source.
    """
    made = {id(finding) for finding in first.fixed}
    open_ = [finding for finding in findings if id(finding) not in made]
    later = result.fixed[len(first.fixed) :]
    resolved = _resolved(open_, [*later, *at_origin(result.remaining, source, result.origins)])
    fixed = result.fixed + resolved
    # What the user finds at the place of such a finding is on the lines that correspond to its own.
    return replace(
        result,
        findings=fixed + result.remaining,
        fixed=fixed,
        made=[*result.made, *(_there(finding, result) for finding in resolved)],
    )


def _resolved(findings: list[Finding], left: list[Finding]) -> list[Finding]:
    """Return the findings of which nothing is left.

    Args:
        findings: findings of the old source.
        left: what was found after the first fixes, at the lines of the old source.
    """
    gone = Counter(finding.code for finding in findings)
    gone.subtract(finding.code for finding in left)
    places = {(finding.code, finding.line) for finding in left}
    resolved = []
    for finding in sorted(findings, key=lambda each: (each.code, each.line) in places):
        if gone[finding.code] > 0:
            gone[finding.code] -= 1
            resolved.append(finding)
    return sorted(resolved, key=lambda each: (each.line, each.column))


def _there(finding: Finding, result: Result) -> tuple[Span, ...]:
    """Return the lines of the new source that correspond to a finding's in the old one."""
    assert result.output is not None
    new = Source(result.output)
    return tuple(
        (new.line_starts[line], new.line_end(new.line_starts[line]))
        for line, was in enumerate(result.origins)
        if finding.line <= was + 1 <= finding.end_line
    )


def recheck(data: bytes, path: str, settings: Settings, project: Project) -> Result:
    """Check rewritten code without the prefilter: its words may be gone while findings remain."""
    from devicefix.engine.check import check_module
    from devicefix.facts import Facts

    findings, devices = check_module(Facts.read(data), path, settings, project)
    if devices is None:
        return Result(path, findings)
    findings = spelled_out(findings, devices, settings)
    return fix_once(findings, devices, settings) if settings.fix else Result(path, findings)


def spelled_out(findings: list[Finding], devices: Devices, settings: Settings) -> list[Finding]:
    """Return findings whose fixes are spelled out, if the settings ask for that."""
    if not settings.replacements:
        return findings
    from devicefix.rewrite.preview import suggested

    about = devices.facts, devices.insertions, settings.line_length
    return [suggested(finding, *about) for finding in findings]


def fix_once(findings: list[Finding], devices: Devices, settings: Settings) -> Result:
    """Make the fixes that go together, in one round.

    Args:
        findings: the findings of the module.
        devices: what their fixes rely on.
        settings: which fixes are wanted.

    Raises:
        SelfCheckError: a fix would break the module.
    """
    result = Result(devices.path, findings)
    source = devices.facts.source
    chosen: list[tuple[Finding, Fix]] = []
    taken = _Taken()
    for finding in findings:
        fix = finding.fix
        if fix is None or not (fix.safety is Safety.SAFE or _allowed(finding, devices.path, settings)):
            continue
        if not any(map(taken.cross, fix.edits)):
            chosen.append((finding, fix))
            taken.add(fix.edits)
    if not any(fix.edits for _, fix in chosen):
        return result
    try:
        result.output, result.changes = _rewritten(devices, chosen, settings.line_length)
        result.origins = _origins(source, result.changes)
    except RecursionError:
        result.findings = [finding.unfixed("because the code is nested too deeply") for finding in findings]
        return result
    except Exception as problem:
        raise SelfCheckError(_failure(devices, settings, chosen, problem)) from problem
    parts = Spans((edit.start, edit.end) for _, fix in chosen for edit in fix.edits)
    # A finding without edits is resolved by an edit around it.
    kept = [(finding, fix) for finding, fix in chosen if fix.edits or parts.hold(*_span(source, finding))]
    result.fixed = [finding for finding, _ in kept]
    shift = Shift(result.changes)
    result.made = [
        shift.made([(edit.start, edit.end) for edit in fix.edits] or [_span(source, finding)])
        or (shift.span(*_span(source, finding)),)  # the test of the `if` around has its guard
        for finding, fix in kept
    ]
    return result


def _allowed(finding: Finding, path: str, settings: Settings) -> bool:
    """Return whether an unsafe fix is wanted, or justified by a run."""
    from devicefix.devices.places import TOO_EARLY
    from devicefix.rules.registry import RULES

    # A rule that needs a run has no finding without one.
    justified = RULES[finding.code].needs_run or settings.evidence.proves(path, finding.line, finding.code)
    return settings.unsafe_fixes or (justified and not finding.is_unsafe_for(TOO_EARLY))


def _span(source: Source, finding: Finding) -> Span:
    """Return the offsets of a finding."""
    start = source.line_starts[finding.line - 1] + finding.column - 1
    return start, source.line_starts[finding.end_line - 1] + finding.end_column - 1


def _origins(source: Source, changes: Iterable[Change]) -> list[int]:
    """Return for each line of a changed text the line of the old one that it corresponds to, both from 0."""
    found = [0]
    line = 0
    for start, end, text in changes:
        first, last = (source.position(offset)[0] - 1 for offset in (start, end))
        found += range(line + 1, first + 1)
        ends = list(LINE_END.finditer(text))
        found += (min(first + number, last) for number in range(1, len(ends) + 1))
        before = text[ends[-1].end() :] if ends else source.text[source.line_starts[first] : start] + text
        if not before.strip():  # what is on the line is what follows the change
            found[-1] = last
        line = last
    return [*found, *range(line + 1, len(source.line_starts))]


def at_origin(findings: list[Finding], source: Source, origins: Sequence[int]) -> list[Finding]:
    """Return findings in a changed text with the lines of the old text that theirs correspond to.

    Args:
        findings: the findings.
        source: the old text.
        origins: for each line of the changed text that of the old one.
    """

    def where(line: int, column: int) -> Place:
        was = origins[min(line, len(origins)) - 1]
        start = source.line_starts[was]
        return Place(was + 1, min(column, source.line_end(start) - start + 1))

    return [moved_finding(each, where, str) for each in findings]


def _rewritten(
    devices: Devices, fixes: list[tuple[Finding, Fix]], line_length: int | None
) -> tuple[bytes, list[Change]]:
    """Return the file with some fixes made, after the self-check, and what is replaced in it.

    Raises:
        Exception: one of the fixes is wrong, or they don't go together.
    """
    from devicefix.rewrite.selfcheck import check, check_names
    from devicefix.rewrite.wrapping import wrapped

    source, tree = devices.facts.source, devices.facts.tree
    edits = [edit for _, fix in fixes for edit in fix.edits]
    edits += devices.insertions(*(fix.needs for _, fix in fixes))
    edits = joined(source.text, edits)
    changes = wrapped(source, tree, resolved(source.text, edits), line_length)
    output = source.encode(replaced(source.text, changes))
    new = check(source, tree.module, output, edits, changes)
    check_names(source, *new, changes, devices.is_circular)
    return output, changes


def _failure(
    devices: Devices, settings: Settings, fixes: list[tuple[Finding, Fix]], problem: Exception
) -> str:
    """Return the message for fixes that fail: why, which ones, and the command that reproduces it."""
    import shlex

    size = len(fixes)
    while size := size // 2:  # leave out ever smaller parts, if it fails without them
        for at in range(len(fixes) - size, -1, -size):
            fewer = fixes[:at] + fixes[at + size :]
            try:
                _rewritten(devices, fewer, settings.line_length)
            except Exception as other:
                fixes, problem = fewer, other
    findings = [finding for finding, _ in fixes]
    options = ["--select", ",".join(sorted({finding.code for finding in findings}))]
    options += ["--unsafe-fixes"] if settings.unsafe_fixes else []
    options += ["--target", settings.target] if settings.target != "cuda" else []
    places = ", ".join(f"{each.code} on line {each.line}, column {each.column}" for each in findings)
    kind = "" if isinstance(problem, SelfCheckError) else f"fails with {type(problem).__name__}: "
    return (
        f"the file is unchanged, because the rewrite {kind}{problem}. The cause is {places}. To reproduce"
        f" it, run: {shlex.join(['devicefix', 'rewrite', *options, '--', devices.path])}"
    )


class _Taken:
    """The parts of a text that edits replace which can be applied together."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, Span]] = []  # each part at its start and at its end, sorted

    def add(self, edits: Iterable[Edit]) -> None:
        """Add edits, none of which crosses one of these."""
        for edit in edits:
            for place in (edit.start, edit.end):
                insort(self._ends, (place, (edit.start, edit.end)))

    def cross(self, edit: Edit) -> bool:
        """Return whether an edit crosses one of these, which then starts or ends inside it."""
        first, last = bisect_left(self._ends, (edit.start,)), bisect_left(self._ends, (edit.end + 1,))
        return any(_cross((edit.start, edit.end), other) for _, other in self._ends[first:last])


def _cross(one: Span, other: Span) -> bool:
    """Return whether two parts overlap, and neither is strictly inside the other."""
    (start, end), (first, last) = one, other
    inside = start <= first and last <= end
    around = first <= start and end <= last
    return start < last and first < end and inside == around
